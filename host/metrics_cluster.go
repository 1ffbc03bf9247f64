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
		{"hostd_raft_groups_awake", "Replicas whose clock goes; the others sleep.", func(s raftgroup.Stats) float64 { return float64(s.Awake) }},
		{"hostd_raft_groups_led", "Replicas that lead.", func(s raftgroup.Stats) float64 { return float64(s.Leading) }},
		{"hostd_shards_stopped", "Replicas that have stopped: on damage, or at an entry of a later release.", func(s raftgroup.Stats) float64 { return float64(s.Stopped) }},
		{"hostd_raft_snapshots_sending", "Snapshots of shards on their way to other nodes, or waiting for their turn.", func(s raftgroup.Stats) float64 { return float64(s.SendingSnapshots) }},
		{"hostd_raft_held_log_bytes", "Bytes of the log held on disk for followers that a snapshot is sent to.", func(s raftgroup.Stats) float64 { return float64(s.HeldBytes) }},
		{"hostd_raft_snapshot_kept_bytes", "Bytes on disk of snapshots that are sent, of the log behind them, and of snapshots that came in part.", func(s raftgroup.Stats) float64 { return float64(s.KeptBytes) }},
		{"hostd_peers_silent", "Known nodes that are not heard.", func(s raftgroup.Stats) float64 { return float64(s.Suspected) }},
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, raft(g.pick)))
	}
	for _, c := range []struct {
		name, help string
		pick       func(raftgroup.Stats) float64
	}{
		{"hostd_raft_elections_won_total", "Elections that replicas on this node won.", func(s raftgroup.Stats) float64 { return float64(s.Elections) }},
		{"hostd_raft_campaigns_total", "Elections begun because a leader's node went silent.", func(s raftgroup.Stats) float64 { return float64(s.Campaigns) }},
		{"hostd_raft_proposals_dropped_total", "Proposals that entered no log.", func(s raftgroup.Stats) float64 { return float64(s.ProposalsDropped) }},
		{"hostd_raft_messages_sent_total", "Messages of groups put into frames.", func(s raftgroup.Stats) float64 { return float64(s.MessagesSent) }},
		{"hostd_raft_messages_received_total", "Messages taken for a replica here.", func(s raftgroup.Stats) float64 { return float64(s.MessagesReceived) }},
		{"hostd_raft_snapshots_outrun_total", "Snapshots that were sent in vain, since the log behind them could not be held.", func(s raftgroup.Stats) float64 { return float64(s.SnapshotsOutrun) }},
		{"hostd_raft_snapshots_resumed_total", "Times that the sending of a snapshot went on where it broke off.", func(s raftgroup.Stats) float64 { return float64(s.SnapshotsResumed) }},
		{"hostd_raft_snapshot_files_damaged_total", "Files of snapshots that were found to be damaged as they were sent, and written again.", func(s raftgroup.Stats) float64 { return float64(s.SnapshotFilesDamaged) }},
		{"hostd_raft_messages_refused_total", "Messages of other nodes for no replica here.", func(s raftgroup.Stats) float64 { return float64(s.MessagesRefused) }},
		{"hostd_raft_messages_forged_total", "Messages of other nodes that nobody may have sent, or that are impossible.", func(s raftgroup.Stats) float64 { return float64(s.MessagesForged) }},
		{"hostd_raft_frames_refused_total", "Frames of other nodes that are none.", func(s raftgroup.Stats) float64 { return float64(s.FramesRefused) }},
		{"hostd_raft_wakes_total", "Sleeping replicas that woke.", func(s raftgroup.Stats) float64 { return float64(s.Wakes) }},
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: c.name, Help: c.help}, raft(c.pick)))
	}
	m.registry.MustRegister(&linkMetrics{n.peers})
	for _, kind := range coordinator.PendingKinds {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hostd_orders_pending", Help: "Accepted orders of operators that are not carried out yet, by kind, as the coordinator said last: the same on every node.",
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
	linkUp        = prometheus.NewDesc("hostd_peer_up", "1 while the node is heard.", []string{"peer"}, nil)
	linkBytesOut  = prometheus.NewDesc("hostd_peer_bytes_sent_total", "Bytes of raft frames sent to the node.", []string{"peer"}, nil)
	linkBytesIn   = prometheus.NewDesc("hostd_peer_bytes_received_total", "Bytes of raft frames received from the node.", []string{"peer"}, nil)
	linkFramesOut = prometheus.NewDesc("hostd_peer_frames_sent_total", "Raft frames sent to the node.", []string{"peer"}, nil)
	linkDropped   = prometheus.NewDesc("hostd_peer_frames_dropped_total", "Raft frames for the node that did not go out.", []string{"peer"}, nil)
	linkQueued    = prometheus.NewDesc("hostd_peer_queue_bytes", "Bytes of frames that wait for the node.", []string{"peer"}, nil)
	linksMade     = prometheus.NewDesc("hostd_peer_links_total", "Links to the node that were begun.", []string{"peer"}, nil)
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
