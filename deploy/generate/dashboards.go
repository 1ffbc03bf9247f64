package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// A dashboard is a list of rows of panels, from top to bottom.
type dashboard struct {
	uid, title string
	byType     bool // the dashboard has a selector of entity types
	rows       []row
}

type row struct {
	title  string
	panels []panel
}

// A panel is a graph or a number.
type panel struct {
	title, unit string
	number      bool // the panel shows the last value; if worse is set, a value of at least 1 is red
	worse       bool
	about       string
	lines       []line
}

// A line is a query and the legend of its results, with labels in braces.
type line struct{ expr, legend string }

// The rate interval and the label selectors of queries. They use Grafana
// variables.
const (
	over  = "[$__rate_interval]"
	nodes = `instance=~"$instance"`
	named = `instance=~"$instance",entity_type=~"$type"`
)

var overview = dashboard{
	uid: "hostd-overview", title: "hostd: overview",
	rows: []row{
		{"Health", []panel{
			{title: "Nodes", number: true, lines: []line{{"count(hostd_build_info)", ""}}},
			{title: "Releases", number: true, lines: []line{{"count(count by (version) (hostd_build_info))", ""}}},
			{title: "Shards without a leader", number: true, worse: true, lines: []line{{"max(hostd_shards_without_leader)", ""}}},
			{title: "Shards without a quorum", number: true, worse: true, lines: []line{{"max(hostd_shards_without_quorum)", ""}}},
			{title: "Replicas stopped or disputed", number: true, worse: true, lines: []line{{"sum(hostd_shards_stopped) + sum(hostd_shards_disputed)", ""}}},
			{title: "Nodes that reject writes", number: true, worse: true, lines: []line{{"sum(hostd_disk_read_only)", ""}}},
			{title: "Suspected nodes", number: true, worse: true, lines: []line{{"max(hostd_peers_suspected)", ""}}},
			{title: "Dead letters", number: true, worse: true, lines: []line{{"sum(hostd_dead_letters)", ""}}},
		}},
		{"Load", []panel{
			{title: "Commands, events and queries", unit: "ops", lines: []line{
				{"sum(rate(hostd_commands_total{" + nodes + "}" + over + "))", "commands"},
				{"sum(rate(hostd_events_total{" + nodes + "}" + over + "))", "events"},
				{"sum(rate(hostd_queries_total{" + nodes + "}" + over + "))", "queries"},
			}},
			{title: "Rejections and faults", unit: "ops", about: "Rejections are decisions of guests; faults are failures of guests.", lines: []line{
				{"sum(rate(hostd_rejections_total{" + nodes + "}" + over + "))", "rejections"},
				{"sum(rate(hostd_rate_limited_total{" + nodes + "}" + over + "))", "rate limited"},
				{"sum(rate(hostd_rpc_waiting_rejected_total{" + nodes + "}" + over + "))", "no room"},
				{"sum by (kind) (rate(hostd_guest_faults_by_kind_total{" + nodes + "}" + over + "))", "fault: {{kind}}"},
			}},
			{title: "Calls by code", unit: "ops", lines: []line{{"sum by (code) (rate(hostd_rpc_calls_total{" + nodes + "}" + over + "))", "{{code}}"}}},
		}},
		{"Latency", []panel{
			{title: "Commands, 99th percentile by stage", unit: "s", about: "queue: until the executor called the guest; guest: the call; commit: until the record was applied.", lines: []line{
				{"histogram_quantile(0.99, sum by (stage, le) (rate(hostd_command_seconds_bucket{" + nodes + "}" + over + ")))", "{{stage}}"},
			}},
			{title: "Calls, 99th percentile by procedure", unit: "s", lines: []line{
				{"histogram_quantile(0.99, sum by (procedure, le) (rate(hostd_rpc_seconds_bucket{" + nodes + "}" + over + ")))", "{{procedure}}"},
			}},
			{title: "Oldest undelivered message", unit: "s", lines: []line{{"hostd_outbox_oldest_seconds{" + nodes + "}", "{{instance}}"}}},
		}},
		{"Resources", []panel{
			{title: "Processor", unit: "none", about: "CPU cores in use.", lines: []line{{"rate(process_cpu_seconds_total{" + nodes + "}" + over + ")", "{{instance}}"}}},
			{title: "Memory", unit: "bytes", lines: []line{{"process_resident_memory_bytes{" + nodes + "}", "{{instance}}"}}},
			{title: "Free disk", unit: "bytes", lines: []line{{"hostd_disk_free_bytes{" + nodes + "}", "{{instance}}"}}},
			{title: "Shards led", unit: "none", lines: []line{{"hostd_shards_led{" + nodes + "}", "{{instance}}"}}},
		}},
	},
}

var types = dashboard{
	uid: "hostd-types", title: "hostd: entity types", byType: true,
	rows: []row{
		{"Load by type", []panel{
			{title: "Commands passed to guests", unit: "ops", lines: []line{{"sum by (entity_type) (rate(hostd_type_commands_total{" + named + "}" + over + "))", "{{entity_type}}"}}},
			{title: "Fuel", unit: "ops", lines: []line{{"sum by (entity_type) (rate(hostd_type_fuel_total{" + named + "}" + over + "))", "{{entity_type}}"}}},
			{title: "Fuel per command", unit: "none", lines: []line{{
				"sum by (entity_type) (rate(hostd_type_fuel_total{" + named + "}" + over + ")) / sum by (entity_type) (rate(hostd_type_commands_total{" + named + "}" + over + "))", "{{entity_type}}",
			}}},
			{title: "Resident entities", unit: "none", lines: []line{{"sum by (entity_type) (hostd_type_entities_resident{" + named + "})", "{{entity_type}}"}}},
		}},
		{"Latency of commands", []panel{stage("queue", "Queue: until the executor called the guest"), stage("guest", "Guest: the call"), stage("commit", "Commit: until the record was applied")}},
		{"Correctness", []panel{
			{title: "Diverging states", unit: "none", about: "Compared states that differ from the state replayed from their events. Any value above 0 means that the guest is not pure.", lines: []line{
				{"sum by (entity_type) (increase(hostd_guest_divergence_total{" + named + "}[1h]))", "{{entity_type}}"},
			}},
			{title: "Without a trusted signature", unit: "none", lines: []line{{"max by (entity_type, reason) (hostd_type_signature_faults{" + named + "})", "{{entity_type}}: {{reason}}"}}},
		}},
	},
}

// stage returns the panel of one stage of commands.
func stage(name, title string) panel {
	p := panel{title: title, unit: "s"}
	for _, q := range [...][2]string{{"0.5", "median"}, {"0.99", "99 %"}} {
		p.lines = append(p.lines, line{
			"histogram_quantile(" + q[0] + ", sum by (entity_type, le) (rate(hostd_command_seconds_bucket{" + named + `,stage="` + name + `"}` + over + ")))", "{{entity_type}}, " + q[1],
		})
	}
	return p
}

var internals = dashboard{
	uid: "hostd-internals", title: "hostd: internals",
	rows: []row{
		{"The log", []panel{
			{title: "Syncs", unit: "ops", lines: []line{{"rate(hostd_wal_syncs_total{" + nodes + "}" + over + ")", "{{instance}}"}}},
			{title: "Duration of syncs, 99th percentile", unit: "s", lines: []line{{"histogram_quantile(0.99, sum by (instance, le) (rate(hostd_wal_sync_seconds_bucket{" + nodes + "}" + over + ")))", "{{instance}}"}}},
			{title: "Written", unit: "Bps", lines: []line{{"rate(hostd_wal_bytes_total{" + nodes + "}" + over + ")", "{{instance}}"}}},
			{title: "Commands per entry", unit: "none", lines: []line{{
				"rate(hostd_commands_total{" + nodes + "}" + over + ") / rate(hostd_proposals_total{" + nodes + "}" + over + ")", "{{instance}}",
			}}},
			{title: "Applied and not stored yet", unit: "bytes", lines: []line{{"hostd_apply_backlog_bytes{" + nodes + "}", "{{instance}}"}}},
			{title: "Compaction debt", unit: "bytes", lines: []line{{"hostd_store_compaction_debt_bytes{" + nodes + "}", "{{instance}}"}}},
		}},
		{"Replicas", []panel{
			{title: "Elections", unit: "none", lines: []line{
				{"increase(hostd_raft_elections_won_total{" + nodes + "}" + over + ")", "{{instance}}: won"},
				{"increase(hostd_raft_campaigns_total{" + nodes + "}" + over + ")", "{{instance}}: started by a failure"},
			}},
			{title: "Active replicas", unit: "none", lines: []line{{"hostd_raft_groups_awake{" + nodes + "}", "{{instance}}"}}},
			{title: "Proposals dropped", unit: "ops", lines: []line{{"rate(hostd_raft_proposals_dropped_total{" + nodes + "}" + over + ")", "{{instance}}"}}},
			{title: "Longest round trip between nodes", unit: "s", lines: []line{{"hostd_peer_round_trip_seconds{" + nodes + "}", "{{instance}}"}}},
			{title: "Sent to other nodes", unit: "Bps", lines: []line{{"sum by (instance, peer) (rate(hostd_peer_bytes_sent_total{" + nodes + "}" + over + "))", "{{instance}} to {{peer}}"}}},
			{title: "Snapshots in transfer", unit: "none", lines: []line{{"hostd_raft_snapshots_sending{" + nodes + "}", "{{instance}}"}}},
			{title: "Clock offset", unit: "s", lines: []line{{"hostd_clock_skew_seconds{" + nodes + "}", "{{instance}}"}}},
		}},
		{"Entities and guests", []panel{
			{title: "Loads", unit: "ops", lines: []line{
				{"rate(hostd_entity_loads_total{" + nodes + "}" + over + ")", "{{instance}}"},
				{"rate(hostd_snapshot_loads_total{" + nodes + "}" + over + ")", "{{instance}}: from a snapshot"},
			}},
			{title: "Resident entities", unit: "none", lines: []line{
				{"hostd_entities_resident{" + nodes + "}", "{{instance}}"}, {"hostd_entities_hibernated{" + nodes + "}", "{{instance}}: hibernated"},
			}},
			{title: "Evictions", unit: "ops", lines: []line{
				{"rate(hostd_passivations_total{" + nodes + "}" + over + ")", "{{instance}}: idle"}, {"rate(hostd_evictions_total{" + nodes + "}" + over + ")", "{{instance}}: to free memory"},
			}},
			{title: "Memory of guests", unit: "bytes", lines: []line{{"hostd_engine_memory_bytes{" + nodes + "}", "{{instance}}"}}},
			{title: "Preemptions of executors", unit: "ops", lines: []line{{"rate(hostd_executor_preemptions_total{" + nodes + "}" + over + ")", "{{instance}}"}}},
			{title: "Lateness of timers, 99th percentile", unit: "s", lines: []line{{"histogram_quantile(0.99, sum by (instance, le) (rate(hostd_timer_lateness_seconds_bucket{" + nodes + "}" + over + ")))", "{{instance}}"}}},
			{title: "Undelivered messages", unit: "none", lines: []line{{"hostd_outbox_messages{" + nodes + "}", "{{instance}}"}}},
			{title: "Failed deliveries", unit: "ops", lines: []line{{"rate(hostd_message_retries_total{" + nodes + "}" + over + ")", "{{instance}}"}}},
		}},
		{"Callers", []panel{
			{title: "Bytes of waiting calls", unit: "bytes", lines: []line{{"hostd_rpc_waiting_bytes{" + nodes + "}", "{{instance}}"}}},
			{title: "Streams", unit: "none", lines: []line{{"hostd_rpc_streams{" + nodes + "}", "{{instance}}"}, {"hostd_rpc_subscribers{" + nodes + "}", "{{instance}}: subscribers"}}},
			{title: "Delivery delay of events, 99th percentile", unit: "s", lines: []line{{"histogram_quantile(0.99, sum by (instance, le) (rate(hostd_rpc_subscription_lag_seconds_bucket{" + nodes + "}" + over + ")))", "{{instance}}"}}},
			{title: "Goroutines", unit: "none", lines: []line{{"go_goroutines{" + nodes + "}", "{{instance}}"}}},
		}},
	},
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Sizes of panels. A row of Grafana is 24 units wide.
const (
	rowWidth     = 24
	numberWidth  = 3
	numberHeight = 4
	graphHeight  = 8
	mostGraphs   = 4 // panels in a row
)

type object = map[string]any

// json returns the dashboard in Grafana's import format.
func (d dashboard) json() ([]byte, error) {
	var panels []object
	y := 0
	for _, r := range d.rows {
		panels = append(panels, object{"id": len(panels) + 1, "type": "row", "title": r.title, "collapsed": false, "panels": []any{}, "gridPos": place(0, y, rowWidth, 1)})
		y++
		x, height := 0, 0
		for _, p := range r.panels {
			width := rowWidth / min(len(r.panels), mostGraphs)
			if len(r.panels) > mostGraphs {
				width = rowWidth / 3
			}
			if height = graphHeight; p.number {
				width, height = numberWidth, numberHeight
			}
			if x+width > rowWidth {
				x, y = 0, y+height
			}
			panels = append(panels, p.object(len(panels)+1, place(x, y, width, height)))
			x += width
		}
		y += height
	}
	out := object{
		"uid": d.uid, "title": d.title, "tags": []string{"hostd"}, "schemaVersion": 39, "version": 1, "editable": true, "refresh": "30s", "timezone": "browser",
		"time": object{"from": "now-3h", "to": "now"}, "panels": panels, "annotations": object{"list": []any{}}, "templating": object{"list": d.variables()},
		"links": []object{{"type": "dashboards", "title": "hostd", "tags": []string{"hostd"}, "asDropdown": false, "includeVars": true, "keepTime": true}},
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(out)
	return b.Bytes(), err
}

func place(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

// source is the Prometheus data source that the user selects.
var source = object{"type": "prometheus", "uid": "${source}"}

// variables returns the selectors at the top of the dashboard.
func (d dashboard) variables() []object {
	out := []object{{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}}
	choice := func(name, label, of string) {
		query := "label_values(" + of + ")"
		out = append(out, object{
			"name": name, "label": label, "type": "query", "datasource": source, "query": query, "definition": query,
			"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "current": object{"text": "All", "value": "$__all"}, "allValue": ".*",
		})
	}
	choice("instance", "Node", "hostd_build_info, instance")
	if d.byType {
		choice("type", "Entity type", "hostd_type_commands_total, entity_type")
	}
	return out
}

// object returns the panel in Grafana's format.
func (p panel) object(id int, at object) object {
	var targets []object
	for i, l := range p.lines {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": l.expr, "legendFormat": l.legend, "range": !p.number, "instant": p.number, "exemplar": p.unit == "s",
		})
	}
	unit := p.unit
	if unit == "" {
		unit = "none"
	}
	defaults := object{"unit": unit}
	out := object{"id": id, "title": p.title, "description": p.about, "datasource": source, "gridPos": at, "targets": targets, "fieldConfig": object{"defaults": defaults, "overrides": []any{}}}
	if !p.number {
		out["type"] = "timeseries"
		defaults["custom"] = object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "axisSoftMin": 0}
		out["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
		return out
	}
	out["type"] = "stat"
	color := "none"
	if p.worse {
		color = "background"
		defaults["thresholds"] = object{"mode": "absolute", "steps": []object{{"color": "green", "value": nil}, {"color": "red", "value": 1}}}
	}
	out["options"] = object{"colorMode": color, "graphMode": "none", "reduceOptions": object{"calcs": []string{"lastNotNull"}, "values": false}}
	return out
}
