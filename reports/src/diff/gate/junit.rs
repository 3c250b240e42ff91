//! JUnit XML, as CI systems read it: a test suite a rule, a test case a block.
//!
//! There is no standard; this is the common core of the schema of Apache Ant and of what Jenkins and GitLab read. What
//! is inconclusive is an `error` and not `skipped`, because systems show a skipped test as green.

use super::judge::{Judged, Judgement, Outcome};

impl Judgement {
    /// The text of the file.
    pub fn junit(&self) -> String {
        let counts = |all: &[&Judged]| {
            let count = |outcome| all.iter().filter(|judged| judged.outcome == outcome).count();
            let (failures, errors) = (count(Outcome::Fail), count(Outcome::Inconclusive));
            format!("tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\"", all.len())
        };
        let all: Vec<&Judged> = self.all.iter().collect();
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"maestro diff\" {}>\n",
            counts(&all)
        );
        for rule in all.chunk_by(|a, b| a.rule == b.rule) {
            text += &format!("  <testsuite name=\"{}\" {}>\n", escape(&rule[0].rule), counts(rule));
            rule.iter().for_each(|judged| text += &case(judged));
            text += "  </testsuite>\n";
        }
        text + "</testsuites>\n"
    }
}

fn case(judged: &Judged) -> String {
    let (rule, why) = (escape(&judged.rule), escape(&judged.why));
    let name = escape(&format!("{} {}", judged.subject, judged.metric));
    let content = match judged.outcome {
        Outcome::Pass => format!("<system-out>{why}</system-out>"),
        Outcome::Fail => format!("<failure type=\"regression\" message=\"{why}\"/>"),
        Outcome::Inconclusive => format!("<error type=\"inconclusive\" message=\"{why}\"/>"),
    };
    format!("    <testcase classname=\"{rule}\" name=\"{name}\">{content}</testcase>\n")
}

/// Text for content and for attributes in double quotes. Control characters are not allowed in XML 1.0 at all.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_and_awkward_names() {
        let judged = |rule: &str, outcome| Judged {
            rule: rule.into(),
            subject: "a<b> & \"c\"".into(),
            metric: "alone",
            outcome,
            why: "x > y\u{1}".into(),
        };
        let all = vec![judged("r1", Outcome::Pass), judged("r1", Outcome::Fail), judged("r2", Outcome::Inconclusive)];
        let text = Judgement { all }.junit();
        assert_eq!(
            text,
            r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="maestro diff" tests="3" failures="1" errors="1">
  <testsuite name="r1" tests="2" failures="1" errors="0">
    <testcase classname="r1" name="a&lt;b&gt; &amp; &quot;c&quot; alone"><system-out>x &gt; y </system-out></testcase>
    <testcase classname="r1" name="a&lt;b&gt; &amp; &quot;c&quot; alone"><failure type="regression" message="x &gt; y "/></testcase>
  </testsuite>
  <testsuite name="r2" tests="1" failures="0" errors="1">
    <testcase classname="r2" name="a&lt;b&gt; &amp; &quot;c&quot; alone"><error type="inconclusive" message="x &gt; y "/></testcase>
  </testsuite>
</testsuites>
"#
        );
    }
}
