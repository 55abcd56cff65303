//! `tcpcost study show STUDY --format manifest`: objects of Kubernetes whose pods are a study's hosts.
//!
//! An Indexed Job has a pod for each host, each on its own node, in which this program waits. `tcpcost run` then starts the
//! agents in the pods by `kubectl exec`, which authenticates. With `--pod attach` the Job's own process is the agent, for
//! clusters that do not allow `exec`, and `kubectl attach` joins its standard input and output. The names of a Job's pods are not
//! known before, so a headless Service for each index selects its pod, and kubectl accepts `svc/NAME` for both commands.
//!
//! An agent ends with its command, and the next command or bed needs a new agent. A Job restarts a container in its pod, and so
//! on its node, only after an exit code other than 0 (`restartPolicy: OnFailure`), so a standing agent ends with such a code.
//! Kubernetes counts these restarts (`backoffLimit`), and delays them: the first by nothing, the next by 10 s, then twice as long
//! each time up to five minutes, until a container has run for ten minutes. The command tries again meanwhile (`conduct/src/nodes.rs`).

use serde_json::{Value, json};
use tcpcost_conduct::studies;
use tcpcost_console::exit::usage;
use tcpcost_study::HostName;

/// Properties of the pods: `--pod KEY=VALUE`.
struct Pods {
    /// Image of the pods, with tcpcost in its PATH.
    image: String,
    /// True if the agents are the Job itself, reached by `kubectl attach`.
    attach: bool,
    /// True if the pods are in the nodes' own network.
    host_network: bool,
    /// Capabilities of the pods.
    capabilities: Vec<String>,
    /// Node taints to tolerate, as kubectl writes them.
    tolerate: Vec<String>,
    /// Namespace of the objects; `None` is kubectl's.
    namespace: Option<String>,
    /// Seconds after which the pods end by themselves.
    deadline: u32,
}

impl Pods {
    /// Parses the words of `--pod`.
    ///
    /// # Errors
    /// A key is unknown, a value is missing or wrong, or no image is named.
    fn parse(words: &[String]) -> anyhow::Result<Pods> {
        let mut pods = Pods {
            image: String::new(),
            attach: false,
            host_network: false,
            capabilities: CAPABILITIES.map(String::from).to_vec(),
            tolerate: Vec::new(),
            namespace: None,
            deadline: 86_400,
        };
        for word in words {
            let list = |value: &str| value.split(',').map(String::from).collect();
            match word
                .split_once('=')
                .map_or((word.as_str(), None), |(key, value)| (key, Some(value)))
            {
                ("attach", None) => pods.attach = true,
                ("host-network", None) => pods.host_network = true,
                ("image", Some(value)) => pods.image = value.to_string(),
                ("capabilities", Some(value)) => pods.capabilities = list(value),
                ("tolerate", Some(value)) => pods.tolerate.push(value.to_string()),
                ("namespace", Some(value)) => pods.namespace = Some(value.to_string()),
                ("deadline", Some(value)) => {
                    let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                    let wrong = || usage(format!("--pod {word}: expected seconds, from 1"));
                    pods.deadline = seconds.ok_or_else(wrong)?;
                }
                _ => return Err(usage(format!("--pod {word}: expected {KEYS}"))),
            }
        }
        if pods.image.is_empty() {
            return Err(usage("--format manifest needs --pod image=IMAGE"));
        }
        Ok(pods)
    }
}

const KEYS: &str = "image=IMAGE, attach, host-network, capabilities=LIST, tolerate=TAINT, namespace=NAME or deadline=SECONDS";

/// Folder of the agents' journal of changes (`host/src/journal.rs`).
const STATE: &str = "/run/tcpcost";
/// Label with the index of a pod in an Indexed Job (batch/v1, JobCompletionIndexAnnotation; a label since 1.28).
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Label with the name of a pod's Job.
const JOB: &str = "batch.kubernetes.io/job-name";
/// Linux capabilities that a Job may add, without `CAP_` as in Kubernetes.
const CAPABILITIES: [&str; 3] = ["BPF", "PERFMON", "NET_ADMIN"];

/// Limit of restarts of a container: enough for a day with many runs and failed beds.
const RESTARTS: u32 = 1000;
/// Time without a line from its command after which a standing agent restores the host: that of an agent of `tcpcost run`.
const LEASE: &str = "90s";

/// Returns the manifest: YAML documents, each a JSON object (JSON is YAML), after a comment with the `[hosts]` of the study file.
///
/// # Errors
/// No study has this name, cells have different hosts, or a capability or taint is wrong.
pub fn manifest(named: &str, pod: &[String]) -> anyhow::Result<String> {
    of_study(named, &Pods::parse(pod)?)
}

fn of_study(named: &str, args: &Pods) -> anyhow::Result<String> {
    let (name, text, file) = studies::find(named)?;
    let study =
        tcpcost_study::Study::parse(&name, &text, &file).map_err(|e| usage(e.to_string()))?;
    let hosts = study.only_hosts().map_err(usage)?;
    let halves = |cell: &tcpcost_study::Cell| {
        let names = cell.knobs.host_names();
        names.iter().any(|host| host.half_of().is_some())
    };
    if args.attach && study.cells.iter().any(halves) {
        return Err(usage(
            "--pod attach: hosts that connect and listen have two agents each, and a pod has one process: omit attach",
        ));
    }
    let name = object_name(&study.name);
    let objects = objects(&name, &hosts, args)?;
    let mut out = head(&name, &hosts, args);
    for object in &objects {
        out += "---\n";
        out += &format!("{object:#}\n");
    }
    Ok(out)
}

/// Returns the comment before the objects, which says how to use them.
fn head(name: &str, hosts: &[HostName], args: &Pods) -> String {
    let namespace = match &args.namespace {
        Some(namespace) => format!(" -n {namespace}"),
        None => String::new(),
    };
    let mut text = format!(
        "# kubectl apply -f FILE; kubectl{namespace} wait --for=jsonpath='{{.status.ready}}'={count} job/{name}\n\
         # Then `tcpcost run --allow-exec` with this in the study file; kubectl delete -f FILE ends it.\n#\n# [hosts]\n",
        count = hosts.len()
    );
    for (index, host) in hosts.iter().enumerate() {
        text += &if args.attach {
            format!("# {host} = \"attach:kubectl attach -i -q{namespace} svc/{name}-{index}\"\n")
        } else {
            format!("# {host} = \"exec:kubectl exec -i{namespace} svc/{name}-{index} --\"\n")
        };
    }
    text
}

/// Returns the Job, then a Service for each index.
fn objects(name: &str, hosts: &[HostName], args: &Pods) -> anyhow::Result<Vec<Value>> {
    let labels = json!({ "app.kubernetes.io/name": "tcpcost", "app.kubernetes.io/instance": name });
    let metadata = |name: &str| {
        let mut metadata = json!({ "name": name, "labels": labels });
        if let Some(namespace) = &args.namespace {
            metadata["namespace"] = json!(namespace);
        }
        metadata
    };
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 10,
        // Hosts that share a node share its CPUs.
        "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": { "matchLabels": labels },
        }] } },
        "containers": [{
            "name": "tcpcost",
            "image": args.image,
            // Waits for its standard input, to which nothing is written. This needs no shell in the image.
            "command": ["tcpcost", "agent", "idle"],
            "stdin": true,
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"], "add": capabilities(&args.capabilities)? },
            },
        }],
    });
    if args.attach {
        let names = hosts.iter().map(HostName::as_str);
        let agent = ["tcpcost", "agent", "--standing", "--lease", LEASE];
        // Kubernetes sets the variable in each container of an Indexed Job, and replaces it here.
        let agent = agent
            .into_iter()
            .chain(["--only", "$(JOB_COMPLETION_INDEX)"]);
        let container = &mut pod["containers"][0];
        container["command"] = json!(agent.chain(names).collect::<Vec<_>>());
        // Only the first client that attaches gets the input, and the input ends with that client.
        container["stdinOnce"] = json!(true);
        container["tty"] = json!(false);
        // The next agent, in another container of the pod, restores the changes of an agent that was killed.
        container["volumeMounts"] = json!([{ "name": "state", "mountPath": STATE }]);
        // Any user can write to the volume itself (mode 777), so the agent makes its own folder in it.
        let own = format!("{STATE}/agent");
        container["env"] = json!([{ "name": "TCPCOST_STATE_DIR", "value": own }]);
        pod["volumes"] = json!([{ "name": "state", "emptyDir": {} }]);
        pod["restartPolicy"] = json!("OnFailure");
    }
    if args.host_network {
        pod["hostNetwork"] = json!(true);
        pod["dnsPolicy"] = json!("ClusterFirstWithHostNet");
    }
    let tolerations: Vec<Value> = args
        .tolerate
        .iter()
        .map(|text| toleration(text))
        .collect::<anyhow::Result<_>>()?;
    if !tolerations.is_empty() {
        pod["tolerations"] = json!(tolerations);
    }
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(name),
        "spec": {
            "completionMode": "Indexed",
            "completions": hosts.len(),
            "parallelism": hosts.len(),
            // A host that is gone fails its trial. A new pod in its place would be another host.
            "backoffLimit": if args.attach { RESTARTS } else { 0 },
            "activeDeadlineSeconds": args.deadline,
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    });
    let service = |index: usize| {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(&format!("{name}-{index}")),
            "spec": { "clusterIP": "None", "selector": { JOB: name, INDEX: index.to_string() } },
        })
    };
    Ok(std::iter::once(job)
        .chain((0..hosts.len()).map(service))
        .collect())
}

fn capabilities(named: &[String]) -> anyhow::Result<Vec<&str>> {
    if named == ["none"] {
        return Ok(Vec::new());
    }
    let each = named.iter().map(|name| {
        let short = name.strip_prefix("CAP_").unwrap_or(name);
        let known = CAPABILITIES.iter().find(|known| **known == short);
        known.copied().ok_or_else(|| {
            let all = CAPABILITIES.join(", ");
            usage(format!(
                "--pod capabilities={name}: expected some of {all}, or none"
            ))
        })
    });
    each.collect()
}

/// Returns the toleration of `KEY=VALUE:EFFECT`; without VALUE or EFFECT, of any value or effect.
fn toleration(text: &str) -> anyhow::Result<Value> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let (taint, effect) = match text.split_once(':') {
        Some((taint, effect)) => (taint, Some(effect)),
        None => (text, None),
    };
    let wrong = || {
        usage(format!(
            "--pod tolerate={text}: expected KEY=VALUE:EFFECT, KEY:EFFECT or KEY"
        ))
    };
    if effect.is_some_and(|effect| !EFFECTS.contains(&effect)) {
        return Err(wrong());
    }
    let mut toleration = match taint.split_once('=') {
        _ if taint.is_empty() || taint.starts_with('=') => return Err(wrong()),
        Some((key, value)) => json!({ "key": key, "operator": "Equal", "value": value }),
        None => json!({ "key": taint, "operator": "Exists" }),
    };
    if let Some(effect) = effect {
        toleration["effect"] = json!(effect);
    }
    Ok(toleration)
}

/// Converts a study's name into a name of Kubernetes objects (RFC 1123: small letters, digits and `-`), with room for an index
/// within the 63 bytes of a label.
fn object_name(study: &str) -> String {
    let sound = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_lowercase() || c.is_ascii_digit() => c,
        _ => '-',
    };
    let name: String = study.chars().map(sound).take(40).collect();
    format!("tcpcost-{name}").trim_end_matches('-').to_string()
}

#[cfg(test)]
mod tests {
    use jsonschema::Validator;

    use super::*;

    fn args() -> Pods {
        Pods {
            image: "registry.example/tcpcost:0.1.0".to_string(),
            attach: false,
            host_network: false,
            capabilities: CAPABILITIES.map(String::from).to_vec(),
            tolerate: Vec::new(),
            namespace: None,
            deadline: 3600,
        }
    }

    /// Kubernetes schema of one kind of object (tests/data/kubernetes/README.md).
    fn schema(kind: &str) -> Validator {
        let text = include_str!("../tests/data/kubernetes/schemas.json");
        let mut schemas: Value = serde_json::from_str(text).unwrap();
        schemas["$ref"] = json!(format!("#/definitions/{kind}"));
        jsonschema::validator_for(&schemas).unwrap()
    }

    /// Parses the objects of a manifest.
    fn read(text: &str) -> Vec<Value> {
        let documents = text.split("---\n").skip(1);
        let objects = documents.map(|document| serde_json::from_str(document).unwrap());
        objects.collect()
    }

    fn check(args: &Pods) -> Vec<Value> {
        let objects = read(&of_study("tour", args).unwrap());
        for object in &objects {
            let kind = match object["kind"].as_str().unwrap() {
                "Job" => "io.k8s.api.batch.v1.Job",
                "Service" => "io.k8s.api.core.v1.Service",
                other => panic!("{other}"),
            };
            let validator = schema(kind);
            let errors: Vec<String> = validator
                .iter_errors(object)
                .map(|error| error.to_string())
                .collect();
            assert_eq!(errors, Vec::<String>::new(), "{object:#}");
        }
        objects
    }

    #[test]
    fn a_manifest_is_a_job_of_as_many_pods_as_hosts_and_a_service_for_each() {
        let objects = check(&args());
        assert_eq!(objects.len(), 3);
        let job = &objects[0]["spec"];
        assert_eq!(
            (&job["completionMode"], &job["completions"]),
            (&json!("Indexed"), &json!(2))
        );
        let pod = &job["template"]["spec"];
        let capabilities = &pod["containers"][0]["securityContext"]["capabilities"];
        assert_eq!(capabilities["add"], json!(["BPF", "PERFMON", "NET_ADMIN"]));
        assert!(pod["hostNetwork"].is_null() && pod["tolerations"].is_null());
        assert_eq!(objects[2]["spec"]["selector"][INDEX], "1");
        let text = of_study("tour", &args()).unwrap();
        assert!(
            text.contains("\n# client = \"exec:kubectl exec -i svc/tcpcost-tour-0 --\"\n"),
            "{text}"
        );
    }

    #[test]
    fn agents_can_be_the_job_itself() {
        let attached = Pods {
            attach: true,
            ..args()
        };
        let job = &check(&attached)[0]["spec"];
        let pod = &job["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(
            container["command"].to_string(),
            r#"["tcpcost","agent","--standing","--lease","90s","--only","$(JOB_COMPLETION_INDEX)","client","server"]"#
        );
        for (name, value) in [("stdin", true), ("stdinOnce", true), ("tty", false)] {
            assert_eq!(container[name], value, "{name}");
        }
        assert_eq!(pod["restartPolicy"], "OnFailure");
        assert_eq!(job["backoffLimit"], RESTARTS);
        assert_eq!(container["volumeMounts"][0]["mountPath"], "/run/tcpcost");
        let text = of_study("tour", &attached).unwrap();
        assert!(
            text.contains("\n# client = \"attach:kubectl attach -i -q svc/tcpcost-tour-0\"\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_optional_can_be_had_and_left_out() {
        let objects = check(&Pods {
            host_network: true,
            capabilities: vec!["none".to_string()],
            tolerate: ["dedicated=net:NoSchedule", "gpu", "a:NoExecute"]
                .map(String::from)
                .to_vec(),
            namespace: Some("lab".to_string()),
            ..args()
        });
        let pod = &objects[0]["spec"]["template"]["spec"];
        assert_eq!(pod["hostNetwork"], true);
        let capabilities = &pod["containers"][0]["securityContext"]["capabilities"];
        assert_eq!(capabilities, &json!({ "drop": ["ALL"], "add": [] }));
        let tolerations = pod["tolerations"].as_array().unwrap();
        assert_eq!(
            tolerations[0],
            json!({ "key": "dedicated", "operator": "Equal", "value": "net", "effect": "NoSchedule" })
        );
        assert_eq!(
            tolerations[1],
            json!({ "key": "gpu", "operator": "Exists" })
        );
        assert!(
            objects
                .iter()
                .all(|object| object["metadata"]["namespace"] == "lab")
        );
    }

    #[test]
    fn the_schemas_refuse_what_kubernetes_would() {
        let whole = check(&args()).remove(0);
        let wrongs: [fn(&mut Value); 4] = [
            |job| job["spec"]["completion"] = json!(2),
            |job| job["spec"]["completions"] = json!("2"),
            |job| job["spec"]["template"]["spec"]["containers"][0]["name"] = Value::Null,
            |job| {
                job["spec"]["template"]["spec"]["containers"][0]["securityContext"]["capabilities"]
                    ["add"] = json!("BPF")
            },
        ];
        for (number, spoil) in wrongs.into_iter().enumerate() {
            let mut job = whole.clone();
            spoil(&mut job);
            assert!(
                !schema("io.k8s.api.batch.v1.Job").is_valid(&job),
                "wrong {number}"
            );
        }
    }

    #[test]
    fn properties_of_pods_are_words() {
        let parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            Pods::parse(&words).map_err(|error| error.to_string())
        };
        let pods = parse(&[
            "image=i:1",
            "attach",
            "capabilities=BPF,PERFMON",
            "tolerate=a=b:NoExecute",
        ]);
        let pods = pods.unwrap();
        assert_eq!(
            (pods.image.as_str(), pods.attach, pods.deadline),
            ("i:1", true, 86_400)
        );
        assert_eq!(pods.capabilities, ["BPF", "PERFMON"]);
        assert_eq!(pods.tolerate, ["a=b:NoExecute"]);
        for wrong in [
            &["image"][..],
            &["deadline=0"],
            &["attach=yes"],
            &["attach"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn bad_words_are_told() {
        for (wrong, expected) in [
            (
                Pods {
                    capabilities: vec!["SYS_ADMIN".to_string()],
                    ..args()
                },
                "--pod capabilities=SYS_ADMIN",
            ),
            (
                Pods {
                    tolerate: vec!["=x".to_string()],
                    ..args()
                },
                "--pod tolerate==x",
            ),
            (
                Pods {
                    tolerate: vec!["a:Never".to_string()],
                    ..args()
                },
                "--pod tolerate=a:Never",
            ),
        ] {
            let error = of_study("tour", &wrong).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
