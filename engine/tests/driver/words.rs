//! An operation in words, for whoever reads a difference.

use crate::model::op::Op;

/// An operation in few words: what is as it mostly is is left out.
pub fn brief(op: &Op) -> String {
    let mut text = format!("{op:?}");
    for usual in [
        "prompt: None, ",
        "overlaps: None, ",
        "shared: [], ",
        "constraints: None, ",
        "lora: None, ",
        "decode: None, ",
        "class: None, ",
        "strict_class: false, ",
        "strict_priority: 0, ",
        "priority_jump: 0.0, ",
        "due: None, ",
        "do_not_queue: false, ",
        "upstream: false, ",
        "overrides: None, ",
        ", seed: None",
        "pin: None, ",
        "affinity: None, ",
        "allow: None, ",
        "deny: [], ",
        "prefer: [], ",
        "taints: [], ",
        "domains: [], ",
        "loras: [], ",
        ", stable_id: None",
        ", domain: []",
        "max_num_batched_tokens: None, ",
        "total_kv_blocks: None, ",
        ", request: None",
    ] {
        text = text.replace(usual, "");
    }
    text
}
