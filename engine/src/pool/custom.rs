//! placeholder
use crate::error::Error;
use crate::pool::Handle;
use crate::pool::choose::{Checked, Placement, Purpose};
use crate::request::Request;
impl Handle {
    pub(crate) fn place_custom(
        &self,
        _request: &Request,
        _checked: Checked,
        _purpose: Purpose,
    ) -> Result<Placement, Error> {
        unimplemented!()
    }
}
