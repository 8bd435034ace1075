#![no_main]

vacancy_fuzz::target!(vacancy_fuzz_targets::policy);
