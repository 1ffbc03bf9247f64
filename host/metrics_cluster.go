package host

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding/coordinator"
)

// watchCluster registers the metrics of the raft groups and of the links to
// other nodes.
func (m *metrics) watchCluster(n *Node) {
	raft := func(pick func(raftgroup.Stats) float64) func() float64 {
		return func() float64 {
			if l := n.replicas.raft.loop.Load(); l != nil {
				return pick(l.Stats())
			}
			return 0
		}
	}
	for _, g := range []struct {
		name, help string
		pick       func(raftgroup.Stats) float64
	}{
		{"hostd_raft_groups", "Replicas on this node.", func(s raftgroup.Stats) float64 { return float64(s.Groups) }},
		{"hostd_raft_groups_awake", "Active replicas; the others are hibernated.", func(s raftgroup.Stats) float64 { return float64(s.Awake) }},
		{"hostd_raft_groups_led", "Replicas that are leaders.", func(s raftgroup.Stats) float64 { return float64(s.Leading) }},
		{"hostd_shards_stopped", "Replicas that stopped because of damage or an entry of a later release.", func(s raftgroup.Stats) float64 { return float64(s.Stopped) }},
		{"hostd_raft_snapshots_sending", "Shard snapshots that are being sent to other nodes or are queued.", func(s raftgroup.Stats) float64 { return float64(s.SendingSnapshots) }},
		{"hostd_raft_held_log_bytes", "Size of the log kept on disk for followers that receive a snapshot.", func(s raftgroup.Stats) float64 { return float64(s.HeldBytes) }},
		{"hostd_raft_snapshot_kept_bytes", "Size on disk of outgoing snapshots, of the log after them, and of partially received snapshots.", func(s raftgroup.Stats) float64 { return float64(s.KeptBytes) }},
		{"hostd_peers_suspected", "Known nodes without recent heartbeats.", func(s raftgroup.Stats) float64 { return float64(s.Suspected) }},
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, raft(g.pick)))
	}
	for _, c := range []struct {
		name, help string
		pick       func(raftgroup.Stats) float64
	}{
		{"hostd_raft_elections_won_total", "Elections won by replicas on this node.", func(s raftgroup.Stats) float64 { return float64(s.Elections) }},
		{"hostd_raft_campaigns_total", "Elections started because a leader's node was suspected.", func(s raftgroup.Stats) float64 { return float64(s.Campaigns) }},
		{"hostd_raft_proposals_dropped_total", "Proposals that were dropped before the log.", func(s raftgroup.Stats) float64 { return float64(s.ProposalsDropped) }},
		{"hostd_raft_messages_sent_total", "Raft messages sent to other nodes.", func(s raftgroup.Stats) float64 { return float64(s.MessagesSent) }},
		{"hostd_raft_messages_received_total", "Raft messages received for replicas on this node.", func(s raftgroup.Stats) float64 { return float64(s.MessagesReceived) }},
		{"hostd_raft_snapshots_outrun_total", "Sent snapshots that were useless because the log after them was truncated.", func(s raftgroup.Stats) float64 { return float64(s.SnapshotsOutrun) }},
		{"hostd_raft_snapshots_resumed_total", "Snapshot transfers that resumed after an interruption.", func(s raftgroup.Stats) float64 { return float64(s.SnapshotsResumed) }},
		{"hostd_raft_snapshot_files_damaged_total", "Snapshot files that were found damaged during a transfer and written again.", func(s raftgroup.Stats) float64 { return float64(s.SnapshotFilesDamaged) }},
		{"hostd_raft_messages_rejected_total", "Raft messages for replicas that this node does not have.", func(s raftgroup.Stats) float64 { return float64(s.MessagesRefused) }},
		{"hostd_raft_messages_forged_total", "Invalid raft messages, or raft messages from an unauthorized sender.", func(s raftgroup.Stats) float64 { return float64(s.MessagesForged) }},
		{"hostd_raft_frames_rejected_total", "Malformed frames received from other nodes.", func(s raftgroup.Stats) float64 { return float64(s.FramesRefused) }},
		{"hostd_raft_wakes_total", "Hibernated replicas that became active.", func(s raftgroup.Stats) float64 { return float64(s.Wakes) }},
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: c.name, Help: c.help}, raft(c.pick)))
	}
	m.registry.MustRegister(&linkMetrics{n.peers})
	for _, kind := range coordinator.PendingKinds {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hostd_operations_pending", Help: "Pending operations of operators, by kind, as last reported by the coordinator; equal on every node.",
			ConstLabels: prometheus.Labels{"kind": string(kind)},
		}, func() float64 {
			pending := 0
			for _, p := range n.membership.member.ClusterView().Pending {
				if p.Kind == kind {
					pending++
				}
			}
			return float64(pending)
		}))
	}
}

// linkMetrics collects the counters of the links, labeled by peer. The label is
// affordable because a cluster has few nodes.
type linkMetrics struct{ peers *peer.Peers }

var (
	linkUp        = prometheus.NewDesc("hostd_peer_up", "1 while the node's heartbeats arrive.", []string{"peer"}, nil)
	linkBytesOut  = prometheus.NewDesc("hostd_peer_bytes_sent_total", "Bytes of raft frames sent to the node.", []string{"peer"}, nil)
	linkBytesIn   = prometheus.NewDesc("hostd_peer_bytes_received_total", "Bytes of raft frames received from the node.", []string{"peer"}, nil)
	linkFramesOut = prometheus.NewDesc("hostd_peer_frames_sent_total", "Raft frames sent to the node.", []string{"peer"}, nil)
	linkDropped   = prometheus.NewDesc("hostd_peer_frames_dropped_total", "Raft frames to the node that were dropped.", []string{"peer"}, nil)
	linkQueued    = prometheus.NewDesc("hostd_peer_queue_bytes", "Size of the queued frames to the node.", []string{"peer"}, nil)
	linksMade     = prometheus.NewDesc("hostd_peer_links_total", "Connections to the node that were opened.", []string{"peer"}, nil)
)

// Describe implements prometheus.Collector.
func (l *linkMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{linkUp, linkBytesOut, linkBytesIn, linkFramesOut, linkDropped, linkQueued, linksMade} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (l *linkMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, s := range l.peers.Stats() {
		up := 0.0
		if s.Alive {
			up = 1
		}
		node := string(s.Node)
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, node)
		}
		count := func(d *prometheus.Desc, v uint64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), node)
		}
		gauge(linkUp, up)
		gauge(linkQueued, float64(s.QueuedBytes))
		count(linkBytesOut, s.BytesSent)
		count(linkBytesIn, s.BytesReceived)
		count(linkFramesOut, s.FramesSent)
		count(linkDropped, s.FramesDropped)
		count(linksMade, s.Links)
	}
}
