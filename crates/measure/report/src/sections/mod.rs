//! Parts of a report, each made once for all its forms.

mod acks;
pub(crate) mod charts;
mod cost;
mod cpu_time;
mod hosts;
pub(crate) mod model;
mod numbers;
mod profiles;
mod published;
mod published_chart;
mod run;
mod series_chart;
mod skbs;
mod times;

use self::charts::{Chart, charts};
use self::model::{Level, Section};
use self::published_chart::published_chart;
use self::series_chart::series_chart;
use crate::summary::Summary;

/// The report for a reader who asks for `level`, without empty sections. The answer comes first, then its details.
pub(crate) fn sections(summary: &Summary, level: Level) -> Vec<Section<'_>> {
    // Only the page has charts.
    let charts = match level {
        Level::Page => all_charts(summary),
        _ => Vec::new(),
    };
    let (of_details, of_answer): (Vec<Chart>, Vec<Chart>) =
        charts.into_iter().partition(|chart| chart.is_detail);
    let answer = answer(summary, of_answer).into_iter();
    let all = answer.chain(details(summary, of_details));
    all.filter_map(|section| section.up_to(level)).collect()
}

fn all_charts(summary: &Summary) -> Vec<Chart> {
    let published = published_chart(summary).into_iter();
    let all = published.chain(charts(summary));
    all.chain(series_chart(summary)).collect()
}

fn answer(summary: &Summary, charts: Vec<Chart>) -> Vec<Section<'_>> {
    let mut sections = vec![
        run::findings(summary),
        run::quiet_or_not(summary),
        Section::new(Level::Answer, "In pictures").charts(charts),
        run::head(summary),
        published::statements(summary),
        published::thresholds(summary),
    ];
    let groups = summary.groups();
    sections.extend(groups.iter().map(|group| cost::cost(summary, group)));
    sections.push(skbs::skbs(summary));
    sections.extend(hosts::outliers(summary));
    sections.push(hosts::hosts(summary));
    sections.extend([false, true].map(|of| cost::instructions(summary, of)));
    sections.extend(published::figures(summary));
    sections.extend(published::table(summary));
    sections.extend([
        cost::meter_costs(summary),
        run::not_measured(summary),
        run::notes(summary),
        run::warnings(summary),
    ]);
    sections
}

fn details(summary: &Summary, charts: Vec<Chart>) -> Vec<Section<'_>> {
    let charts = charts.into_iter();
    let (split, each_host): (Vec<Chart>, Vec<Chart>) =
        charts.partition(|chart| chart.form == "split");
    let mut sections = vec![
        run::about(summary),
        run::conditions(summary),
        acks::acks(summary),
        times::response_times(summary),
        times::groups(summary),
        times::operations(summary),
    ];
    sections.extend(hosts::fleets(summary));
    sections.extend([
        Section::new(Level::Details, "Each host").charts(each_host),
        cpu_time::split(summary).charts(split),
        cpu_time::exact(summary),
    ]);
    sections.extend(profiles::profiles(summary));
    sections.extend(published::functions(summary));
    sections.extend(acks::openings(summary));
    sections.extend(run::environment(summary));
    sections.extend(run::everything(summary));
    sections
}
