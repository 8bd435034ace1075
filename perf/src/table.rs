//! Plain tables for terminals and markdown.

/// Rows of cells; the first column is left-aligned, the others to the right.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Table {
        Table { head: head.iter().map(|&h| h.to_owned()).collect(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a cell per column");
        self.rows.push(cells);
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width =
            |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| {
                if i == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        all().map(line).collect::<Vec<_>>().join("\n")
    }

    /// For a document.
    pub fn markdown(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |", row.join(" | "));
        let rule = (0..self.head.len()).map(|i| if i == 0 { "---" } else { "---:" });
        let rule = format!("| {} |", rule.collect::<Vec<_>>().join(" | "));
        let mut lines = vec![line(&self.head), rule];
        lines.extend(self.rows.iter().map(line));
        lines.join("\n")
    }
}

/// A time, in the unit that suits it.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["what", "n"]);
        table.row(vec!["a".into(), "1,000".into()]);
        table.row(vec!["longer".into(), "2".into()]);
        assert_eq!(table.text(), "what        n\na       1,000\nlonger      2");
        assert!(table.markdown().starts_with("| what | n |\n| --- | ---: |\n| a | 1,000 |"));
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time(170.4), "170 ns");
        assert_eq!(time(1_700.0), "1.70 us");
        assert_eq!(time(2.5e6), "2.50 ms");
    }
}
