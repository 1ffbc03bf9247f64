package main

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// written is the header of the generated files.
const written = "# written by \"make deploy\" from deploy/generate\n"

// An alert is a Prometheus rule, and the series with which its test makes it
// fire.
type alert struct {
	name     string
	expr     string
	after    string // how long expr must hold
	severity string // critical: act immediately; warning: act today
	summary  string // $node is the node's address
	page     string // the page of docs/operating that has the instructions
	fires    series // series that makes expr true from the first minute on
	quiet    series // series with the closest values for which expr is false
}

// series maps series with labels to their values at each minute.
type series map[string]string

const (
	critical = "critical"
	warning  = "warning"
)

// alerts are sorted from the most to the least serious.
var alerts = []alert{
	{
		name: "HostdShardWithoutLeader", expr: "hostd_shards_without_leader > 0", after: "30s", severity: critical,
		summary: "Shards have had no leader for half a minute: their entities do not answer ($node).", page: "monitor.md#alerts",
		fires: series{`hostd_shards_without_leader{instance="n1"}`: "1x90"}, quiet: series{`hostd_shards_without_leader{instance="n1"}`: "0x90"},
	},
	{
		name: "HostdShardWithoutQuorum", expr: "hostd_shards_without_quorum > 0", after: "30s", severity: critical,
		summary: "Too few voters of shards are reachable for a quorum ($node).", page: "recover.md#a-majority-is-lost",
		fires: series{`hostd_shards_without_quorum{instance="n1"}`: "2x90"}, quiet: series{`hostd_shards_without_quorum{instance="n1"}`: "0x90"},
	},
	{
		name: "HostdReadOnly", expr: "hostd_disk_read_only > 0", severity: critical,
		summary: "The node rejects writes because its disk is nearly full ($node).", page: "recover.md#a-disk-is-full",
		fires: series{`hostd_disk_read_only{instance="n1"}`: "1x90"}, quiet: series{`hostd_disk_read_only{instance="n1"}`: "0x90"},
	},
	{
		name: "HostdDiskFills", expr: "predict_linear(hostd_disk_free_bytes[1h], 86400) < 0", after: "30m", severity: warning,
		summary: "At the rate of the last hour, the node's disk will be full within a day ($node).", page: "recover.md#a-disk-is-full",
		fires: series{`hostd_disk_free_bytes{instance="n1"}`: "1000000-1000x90"}, quiet: series{`hostd_disk_free_bytes{instance="n1"}`: "1000000-1x90"},
	},
	{
		name: "HostdSyncsSlow", expr: "histogram_quantile(0.99, sum by (instance, le) (rate(hostd_wal_sync_seconds_bucket[5m]))) > 0.1", after: "5m", severity: warning,
		summary: "One in a hundred syncs of the write-ahead log takes longer than 100 ms ($node).", page: "monitor.md#slow-nodes",
		fires: series{
			`hostd_wal_sync_seconds_bucket{instance="n1",le="0.1"}`: "0+50x90", `hostd_wal_sync_seconds_bucket{instance="n1",le="0.2"}`: "0+60x90", `hostd_wal_sync_seconds_bucket{instance="n1",le="+Inf"}`: "0+60x90",
		},
		quiet: series{
			`hostd_wal_sync_seconds_bucket{instance="n1",le="0.1"}`: "0+60x90", `hostd_wal_sync_seconds_bucket{instance="n1",le="0.2"}`: "0+60x90", `hostd_wal_sync_seconds_bucket{instance="n1",le="+Inf"}`: "0+60x90",
		},
	},
	{
		name: "HostdShardStopped", expr: "hostd_shards_stopped > 0", after: "1m", severity: critical,
		summary: "Replicas on the node have stopped because of damage or an entry of a later release ($node).", page: "monitor.md#stopped-replicas",
		fires: series{`hostd_shards_stopped{instance="n1"}`: "1x90"}, quiet: series{`hostd_shards_stopped{instance="n1"}`: "0x90"},
	},
	{
		name: "HostdShardDisputed", expr: "hostd_shards_disputed > 0", after: "1m", severity: critical,
		summary: "Replicas of shards differ, and no majority of voters shows which are right ($node).", page: "monitor.md#disputed-shards",
		fires: series{`hostd_shards_disputed{instance="n1"}`: "1x90"}, quiet: series{`hostd_shards_disputed{instance="n1"}`: "0x90"},
	},
	{
		name: "HostdPeerSuspected", expr: "hostd_peers_suspected > 0", after: "1m", severity: warning,
		summary: "The node receives no heartbeats from other nodes of its cluster ($node).", page: "recover.md#replace-a-dead-node",
		fires: series{`hostd_peers_suspected{instance="n1"}`: "1x90"}, quiet: series{`hostd_peers_suspected{instance="n1"}`: "0x90"},
	},
	{
		name: "HostdOperationPending", expr: "hostd_operations_pending > 0", after: "1h", severity: warning,
		summary: "An operation has been pending for an hour, or shards lack replicas ({{ $labels.kind }}).", page: "cluster.md#pending-operations",
		fires: series{`hostd_operations_pending{instance="n1",kind="down"}`: "1x90"}, quiet: series{`hostd_operations_pending{instance="n1",kind="down"}`: "0x90"},
	},
	{
		name: "HostdClockOff", expr: "abs(hostd_clock_skew_seconds) > 1", after: "5m", severity: warning,
		summary: "The node's clock is wrong by more than a second ($node).", page: "recover.md#clock-skew",
		fires: series{`hostd_clock_skew_seconds{instance="n1"}`: "-2x90"}, quiet: series{`hostd_clock_skew_seconds{instance="n1"}`: "-0.5x90"},
	},
	{
		name: "HostdOutboxOld", expr: "hostd_outbox_oldest_seconds > 60", after: "5m", severity: warning,
		summary: "Messages have been undelivered for more than a minute ($node).", page: "entities.md#messages-that-are-not-delivered",
		fires: series{`hostd_outbox_oldest_seconds{instance="n1"}`: "61x90"}, quiet: series{`hostd_outbox_oldest_seconds{instance="n1"}`: "60x90"},
	},
	{
		name: "HostdDeadLetters", expr: "hostd_dead_letters > 0", after: "1m", severity: warning,
		summary: "Messages were rejected and wait as dead letters for a decision ($node).", page: "entities.md#dead-letters",
		fires: series{`hostd_dead_letters{instance="n1"}`: "1x90"}, quiet: series{`hostd_dead_letters{instance="n1"}`: "0x90"},
	},
	{
		name: "HostdEntitiesQuarantined", expr: "increase(hostd_entities_quarantined_total[10m]) > 0", severity: warning,
		summary: "Entities fail repeatedly and are quarantined ($node).", page: "entities.md#quarantined-entities",
		fires: series{`hostd_entities_quarantined_total{instance="n1"}`: "0+1x90"}, quiet: series{`hostd_entities_quarantined_total{instance="n1"}`: "7x90"},
	},
	{
		name: "HostdGuestDiverges", expr: "increase(hostd_guest_divergence_total[1h]) > 0", severity: critical,
		summary: "States of $labels.entity_type differ from the states replayed from their events: its module is not pure ($node).", page: "entities.md#modules-that-are-not-deterministic",
		fires: series{`hostd_guest_divergence_total{instance="n1",entity_type="order"}`: "0+1x90"}, quiet: series{`hostd_guest_divergence_total{instance="n1",entity_type="order"}`: "3x90"},
	},
	{
		name: "HostdTimersLate", expr: "hostd_timers_due > 0", after: "10m", severity: warning,
		summary: "More timers become due than the node fires ($node).", page: "monitor.md#alerts",
		fires: series{`hostd_timers_due{instance="n1"}`: "5x90"}, quiet: series{`hostd_timers_due{instance="n1"}`: "0x90"},
	},
	{
		name: "HostdSubscribersLag", expr: "histogram_quantile(0.99, sum by (instance, le) (rate(hostd_rpc_subscription_lag_seconds_bucket[5m]))) > 60", after: "10m", severity: warning,
		summary: "Subscribers receive events more than a minute late ($node).", page: "monitor.md#alerts",
		fires: series{
			`hostd_rpc_subscription_lag_seconds_bucket{instance="n1",le="2"}`: "0+9x90", `hostd_rpc_subscription_lag_seconds_bucket{instance="n1",le="134"}`: "0+60x90", `hostd_rpc_subscription_lag_seconds_bucket{instance="n1",le="+Inf"}`: "0+60x90",
		},
		quiet: series{
			`hostd_rpc_subscription_lag_seconds_bucket{instance="n1",le="2"}`: "0+60x90", `hostd_rpc_subscription_lag_seconds_bucket{instance="n1",le="134"}`: "0+60x90", `hostd_rpc_subscription_lag_seconds_bucket{instance="n1",le="+Inf"}`: "0+60x90",
		},
	},
	{
		name: "HostdOverloaded", expr: "increase(hostd_rpc_waiting_rejected_total[5m]) > 0", after: "5m", severity: warning,
		summary: "The node rejects calls because too many are waiting ($node).", page: "monitor.md#alerts",
		fires: series{`hostd_rpc_waiting_rejected_total{instance="n1"}`: "0+1x90"}, quiet: series{`hostd_rpc_waiting_rejected_total{instance="n1"}`: "4x90"},
	},
	{
		name: "HostdCertificateEnds", expr: "hostd_tls_cert_not_after_seconds - time() < 14 * 86400", severity: warning,
		summary: "A certificate ($labels.use) expires within two weeks ($node).", page: "security.md#rotate-certificates",
		fires: series{`hostd_tls_cert_not_after_seconds{instance="n1",use="server"}`: "1000000x90"}, quiet: series{`hostd_tls_cert_not_after_seconds{instance="n1",use="server"}`: "2000000x90"},
	},
	{
		name: "HostdVersionSkew", expr: "count(count by (version) (hostd_build_info)) > 1", after: "1h", severity: warning,
		summary: "Nodes have run different releases for an hour: an upgrade is stuck.", page: "cluster.md#upgrade-a-cluster",
		fires: series{`hostd_build_info{instance="n1",version="1"}`: "1x90", `hostd_build_info{instance="n2",version="2"}`: "1x90"},
		quiet: series{`hostd_build_info{instance="n1",version="1"}`: "1x90", `hostd_build_info{instance="n2",version="1"}`: "1x90"},
	},
}

// A rule is an alert in the format of Prometheus.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func (a alert) rule() rule {
	summary := strings.NewReplacer("$node", "{{ $labels.instance }}", "$labels.entity_type", "{{ $labels.entity_type }}", "$labels.use", "{{ $labels.use }}").Replace(a.summary)
	return rule{
		Alert: a.name, Expr: a.expr, For: a.after, Labels: map[string]string{"severity": a.severity},
		Annotations: map[string]string{"summary": summary, "runbook": "docs/operating/" + a.page},
	}
}

// rules returns the alerts as one Prometheus rule file.
func rules() ([]byte, error) {
	var all []rule
	for _, a := range alerts {
		all = append(all, a.rule())
	}
	type group struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	}
	return yamlOf(map[string]any{"groups": []group{{"hostd", all}}})
}

// rulesTest returns the tests that promtool runs: only the alert itself fires
// on its series, and no alert fires on values that are almost as bad.
func rulesTest() ([]byte, error) {
	type input struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	type expected struct {
		Time  string `yaml:"eval_time"`
		Name  string `yaml:"alertname"`
		Fires []any  `yaml:"exp_alerts"`
	}
	type unit struct {
		Name   string     `yaml:"name"`
		Every  string     `yaml:"interval"`
		Series []input    `yaml:"input_series"`
		Tests  []expected `yaml:"alert_rule_test"`
	}
	inputs := func(of series) (in []input) {
		for _, name := range sortedKeys(of) {
			in = append(in, input{name, of[name]})
		}
		return in
	}
	var units []unit
	var quiet []input
	for _, a := range alerts {
		u := unit{Name: a.name, Every: "1m", Series: inputs(a.fires)}
		for _, other := range alerts {
			e := expected{Time: "85m", Name: other.name, Fires: []any{}}
			if other.name == a.name {
				e.Fires = append(e.Fires, expectedAlert(a))
			}
			u.Tests = append(u.Tests, e)
		}
		units = append(units, u)
		quiet = append(quiet, inputs(a.quiet)...)
	}
	none := unit{Name: "nothing is wrong", Every: "1m", Series: quiet}
	for _, a := range alerts {
		none.Tests = append(none.Tests, expected{Time: "85m", Name: a.name, Fires: []any{}})
	}
	return yamlOf(map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": append(units, none)})
}

// expectedAlert returns the alert that promtool must report, with the labels of
// its first series.
func expectedAlert(a alert) any {
	labels := map[string]string{"severity": a.severity}
	if !strings.HasPrefix(a.expr, "count(") { // the result of a count has no labels
		first := sortedKeys(a.fires)[0]
		for _, pair := range strings.Split(strings.TrimSuffix(first[strings.Index(first, "{")+1:], "}"), ",") {
			name, value, _ := strings.Cut(pair, "=")
			if name != "le" {
				labels[name] = strings.Trim(value, `"`)
			}
		}
	}
	annotations := a.rule().Annotations
	for name, value := range labels {
		annotations["summary"] = strings.ReplaceAll(annotations["summary"], "{{ $labels."+name+" }}", value)
	}
	return map[string]any{"exp_labels": labels, "exp_annotations": annotations}
}

func yamlOf(v any) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(written)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}
