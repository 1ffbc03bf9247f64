package doctor

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/shortage"
)

// Thresholds.
const (
	certNotice     = 14 * 24 * time.Hour
	clockOff       = 500 * time.Millisecond // skew from which on a node leads no shards
	clockSuspect   = 200 * time.Millisecond
	localClockOff  = 5 * time.Second // skew of the machine that runs the command
	minDescriptors = 16384           // 4,096 connections of clients, tables, segments and links
	fullShare      = 0.9             // used share of the file descriptors or of the memory limit
	stepOverdue    = 5 * time.Minute
	maxListed      = 8 // shards, ids and nodes that a text names
)

const (
	docMonitor = "docs/operating/monitor.md"
	docRecover = "docs/operating/recover.md"
	docCluster = "docs/operating/cluster.md"
	docTLS     = "docs/operating/security.md"
	docTypes   = "docs/operating/versions.md"
	docEntity  = "docs/operating/entities.md"
	docSystems = "docs/operating/systems.md"
	docModules = "docs/operating/modules.md"
	docAudit   = "docs/operating/audit.md"
)

// diagnose derives the findings from facts, the worst first. It is pure.
func diagnose(f *facts) []Finding {
	d := &diagnosis{facts: f}
	d.cluster()
	d.shards()
	for _, m := range f.Cluster.GetMembers() {
		d.member(m)
	}
	for i := range f.Nodes {
		d.node(&f.Nodes[i])
	}
	for i := range f.Types {
		d.entityType(&f.Types[i])
	}
	return sorted(d.found)
}

type diagnosis struct {
	facts *facts
	found []Finding
}

func (d *diagnosis) add(id string, s Severity, subject, doc, problem string, mend ...string) {
	d.found = append(d.found, Finding{ID: id, Severity: s, Subject: subject, Problem: problem, Mend: mend, Doc: doc})
}

// on returns a command that is to be run on a node.
func on(node, command string) string { return "on " + cli.Clean(node) + ": " + command }

// some joins at most maxListed names.
func some(names []string) string {
	if len(names) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

// cluster looks at the members together.
func (d *diagnosis) cluster() {
	c := d.facts.Cluster
	if c == nil {
		return
	}
	if !c.GetQuorum() {
		d.add("metadata-without-quorum", Critical, "cluster", docRecover+"#a-majority-is-lost",
			"the metadata shard has no quorum: nothing about members, modules, roles or settings can change", d.starts()...)
	}
	releases := map[string][]string{}
	least := uint32(0)
	for _, m := range c.GetMembers() {
		releases[m.GetVersion()] = append(releases[m.GetVersion()], m.GetNodeId())
		if most := m.GetMaxClusterVersion(); most == 0 || least == 0 || most < least {
			least = most
		}
	}
	if len(releases) > 1 {
		var parts []string
		for _, release := range slices.Sorted(maps.Keys(releases)) {
			parts = append(parts, fmt.Sprintf("%s on %s", cmp.Or(cli.Clean(release), "an unknown release"), some(releases[release])))
		}
		d.add("versions-mixed", Warning, "cluster", docCluster+"#upgrade-a-cluster",
			"nodes run different releases: "+strings.Join(parts, "; "),
			"hostd node drain NODE", "on NODE: install the release and restart hostd")
	} else if level := max(c.GetClusterVersion(), 1); least > level {
		d.add("upgrade-not-finalized", Note, "cluster", docCluster+"#upgrade-a-cluster",
			fmt.Sprintf("all nodes support cluster version %d, but the cluster uses %d", least, level),
			"hostd cluster upgrade finalize --dry-run", "hostd cluster upgrade finalize")
	}
	for _, o := range c.GetPendingOperations() {
		d.order(o)
	}
}

// starts returns the commands that start the nodes that do not answer.
func (d *diagnosis) starts() (out []string) {
	for _, n := range d.facts.Nodes {
		if n.Err != nil && len(out) < maxListed {
			out = append(out, on(n.ID, "systemctl start hostd"))
		}
	}
	if len(out) == 0 {
		out = []string{"hostd node ls"}
	}
	return out
}

func (d *diagnosis) order(o *clusterv1.PendingOperation) {
	node := cli.Clean(o.GetNodeId())
	mend := []string{"hostd cluster status"}
	switch o.GetKind() {
	case "drain", "leave":
		mend = []string{"hostd cluster status", "hostd node resume " + node}
	case "replication":
		mend = []string{"hostd node ls", "hostd cluster set --replication N"}
	}
	subject := "cluster"
	if node != "" {
		subject = "node " + node
	}
	d.add("order-pending", Warning, subject, docCluster+"#pending-operations",
		fmt.Sprintf("%s has not ended, %d shards remain: %s", cli.Clean(o.GetKind()), o.GetRemaining(), cli.Clean(o.GetReason())), mend...)
}

// shards looks for shards that do not answer, or that are close to it.
func (d *diagnosis) shards() {
	c := d.facts.Cluster
	reached := map[string]bool{}
	for _, m := range c.GetMembers() {
		reached[m.GetNodeId()] = m.GetReachable()
	}
	var lost, halted, leaderless []string
	lostOn := map[string]bool{}
	for _, s := range d.facts.Shards {
		name := fmt.Sprint(s.GetShardId())
		voters := len(s.GetVoters()) + len(s.GetLostVoters())
		there := 0
		for _, node := range s.GetVoters() {
			if reached[node] {
				there++
			}
		}
		switch {
		case voters == 0: // the shard is not placed yet
		case len(s.GetVoters()) <= voters/2:
			lost = append(lost, name)
			for _, node := range s.GetLostVoters() {
				lostOn[node] = true
			}
		case there <= voters/2:
			halted = append(halted, name)
		case s.GetLeader() == "":
			leaderless = append(leaderless, name)
		}
		for _, r := range s.GetStopped() {
			d.stopped(name, r)
		}
	}
	if len(lost) > 0 {
		d.add("shard-majority-lost", Critical, "shards "+some(lost), "docs/operating/unsafe-shard.md",
			"a majority of their voters was lost with the disks of "+some(slices.Sorted(maps.Keys(lostOn)))+": no leader can be elected",
			"hostd recover --help")
	}
	if len(halted) > 0 {
		d.add("shard-without-majority", Critical, "shards "+some(halted), docRecover+"#a-majority-is-lost",
			"too few of their voters are reachable, so their entities do not answer", d.starts()...)
	}
	if len(leaderless) > 0 {
		d.add("shard-without-leader", Critical, "shards "+some(leaderless), docMonitor+"#health-checks",
			"they have no leader although the nodes of a majority of their voters answer: an election takes about a second, and a node that is not ready may not vote", "hostd shard ls")
	}
	lack := shortage.Of(c.GetPolicy(), c.GetMembers(), d.facts.Shards)
	if len(c.GetMembers()) > 1 && lack.Lacking > 0 && lack.Halted == 0 {
		d.add("replicas-missing", Warning, "cluster", docRecover+"#replace-a-dead-node",
			fmt.Sprintf("%d shards have fewer than %d reachable replicas: %s", lack.Lacking, lack.Replication, cmp.Or(lack.Tolerance(), "one more failure may stop them")),
			append(d.starts(), "hostd cluster status")...)
	}
}

func (d *diagnosis) stopped(shard string, r *clusterv1.StoppedReplica) {
	node := cli.Clean(r.GetNodeId())
	mend := []string{on(node, "journalctl -u hostd -g 'shard stopped'")}
	switch r.GetReason() {
	case "unsupported":
		mend = append(mend, on(node, "install the newest release of the cluster and restart hostd"))
	case "disputed":
		mend = d.starts()
	default:
		mend = append(mend, "hostd shard ls")
	}
	d.add("replica-stopped", Critical, "shard "+shard, docMonitor+"#stopped-replicas",
		fmt.Sprintf("its replica on %s has stopped: %s", node, cli.Clean(r.GetReason())), mend...)
}

// member checks the cluster's view of a node.
func (d *diagnosis) member(m *clusterv1.Member) {
	id := cli.Clean(m.GetNodeId())
	subject := "node " + id
	answers := false
	for _, n := range d.facts.Nodes {
		answers = answers || n.ID == m.GetNodeId() && n.Err == nil
	}
	if !m.GetReachable() && answers {
		d.add("peer-unreachable", Critical, subject, docRecover+"#a-network-partition",
			fmt.Sprintf("it answers clients, but %s receives no heartbeats from it: its peer port %s is blocked, or the nodes do not accept each other's certificates", cli.Clean(d.facts.Cluster.GetNodeId()), cli.Clean(m.GetPeerAddress())),
			on(id, "journalctl -u hostd -p warning"))
	}
	switch m.GetStatus() {
	case "weakly_up":
		d.add("node-not-admitted", Warning, subject, docCluster, "it requests admission, but the metadata shard has no quorum to admit it", d.starts()...)
	case "down":
		d.add("node-down", Warning, subject, docRecover+"#replace-a-dead-node", "it was declared dead, and its replicas are being replaced", on(id, "systemctl restart hostd"))
	}
	if m.GetDraining() {
		d.add("node-drained", Note, subject, docCluster, "it is drained: it leads no shards until it is resumed or restarted", "hostd node resume "+id)
	}
	if skew := m.GetClockSkew().AsDuration(); skew.Abs() >= clockSuspect {
		severity, effect := Warning, "from 500ms on it leads no shards"
		if skew.Abs() >= clockOff {
			severity, effect = Critical, "it leads no shards"
		}
		d.add("clock-skew", severity, subject, docRecover+"#clock-skew", fmt.Sprintf("its clock is wrong by %+.1fs: %s", skew.Seconds(), effect), on(id, "timedatectl set-ntp true"), on(id, "chronyc makestep"))
	}
	t := m.GetImpairment()
	switch {
	case t.GetDiskFull():
		d.diskFull(subject, id, "its disk is full: it accepts no commands, leads no shards and gets no replicas")
	case t.GetDamageCount() > 0:
		d.add("replicas-damaged", Critical, subject, docMonitor+"#slow-nodes", fmt.Sprintf("its replicas were damaged again %d times after they were rebuilt: its disk or memory is faulty", t.GetDamageCount()),
			on(id, "smartctl -H /dev/DISK"), "hostd node leave "+id, "hostd node resume "+id)
	case t.GetSlow():
		d.add("node-slow", Warning, subject, docMonitor+"#slow-nodes", "its disk or raft loop is slow, so it leads no shards", on(id, "iostat -x 1 5"))
	}
}

func (d *diagnosis) diskFull(subject, node, problem string) {
	for _, f := range d.found {
		if f.ID == "disk-full" && f.Subject == subject {
			return
		}
	}
	d.add("disk-full", Critical, subject, docRecover+"#a-disk-is-full", problem, on(node, "df -h DATA-DIR"), "hostd node leave "+node)
}

// node checks a node's own statements.
func (d *diagnosis) node(n *nodeFacts) {
	id := cli.Clean(n.ID)
	subject := "node " + id
	if n.Err != nil {
		d.unreachable(n, subject, id)
		return
	}
	if n.NotReady != "" {
		d.add("node-not-ready", Critical, subject, docMonitor+"#health-checks", cli.Clean(n.NotReady), on(id, "journalctl -u hostd -n 100"))
	}
	if off := n.Ahead.Abs() - n.AheadError; off > localClockOff {
		d.add("local-clock-differs", Warning, subject, docRecover+"#clock-skew",
			fmt.Sprintf("its clock and this machine's clock differ by %v: tokens and certificates may be rejected", n.Ahead.Round(time.Second)), "timedatectl set-ntp true")
	}
	ends := map[string]time.Time{}
	if !n.CertUntil.IsZero() {
		ends["server"] = n.CertUntil
	}
	for _, s := range n.Metrics["hostd_tls_cert_not_after_seconds"] {
		at := time.Unix(int64(s.value), 0)
		if use := s.label("use"); s.value > 0 && (ends[use].IsZero() || at.Before(ends[use])) {
			ends[use] = at
		}
	}
	for _, use := range slices.Sorted(maps.Keys(ends)) {
		d.certificate(subject, id, use, ends[use])
	}
	if n.Metrics != nil {
		d.metrics(subject, id, n.Metrics)
	}
}

func (d *diagnosis) unreachable(n *nodeFacts, subject, id string) {
	var untrusted *tls.CertificateVerificationError
	if errors.As(n.Err, &untrusted) || strings.Contains(n.Err.Error(), "tls: ") {
		d.add("tls-handshake-failed", Critical, subject, docTLS, cli.Clean(n.Err.Error()),
			on(id, "hostd cert create-node "+id+" --host HOST"), on(id, "systemctl reload hostd"))
		return
	}
	d.add("node-unreachable", Critical, subject, docRecover+"#replace-a-dead-node", "it does not answer: "+cli.Clean(n.Err.Error()),
		on(id, "systemctl start hostd"), on(id, "journalctl -u hostd -n 100"), "hostd node down "+id)
}

func (d *diagnosis) certificate(subject, node, use string, until time.Time) {
	left := until.Sub(d.facts.Now)
	if left > certNotice {
		return
	}
	severity, text := Warning, fmt.Sprintf("its %s certificate expires at %s", use, until.UTC().Format(time.RFC3339))
	if left <= 0 {
		severity, text = Critical, fmt.Sprintf("its %s certificate expired at %s", use, until.UTC().Format(time.RFC3339))
	}
	mend := []string{"hostd cert create-node " + node + " --host HOST", on(node, "systemctl reload hostd")}
	switch use {
	case "client-ca", "peer-ca":
		mend = []string{"hostd cert create-ca --dir NEW", on(node, "systemctl reload hostd")}
	case "peer-crl":
		mend = []string{"hostd cert revoke", on(node, "systemctl reload hostd")}
	}
	d.add("certificate-expires", severity, subject, docTLS+"#rotate-certificates", text, mend...)
}

// metrics looks at limits and failures that only metrics show.
func (d *diagnosis) metrics(subject, node string, m samples) {
	if m.sum("hostd_disk_read_only") > 0 {
		d.diskFull(subject, node, fmt.Sprintf("it rejects writes, because only %.1f GiB of its disk are free", m.sum("hostd_disk_free_bytes")/(1<<30)))
	}
	if s := m.sum("hostd_disk_stalled_seconds"); s > 0 {
		d.add("disk-stalled", Critical, subject, docRecover+"#a-disk-stalls", fmt.Sprintf("a write to its log has been blocked for %.1fs", s), on(node, "dmesg -T"))
	}
	open, most := m.sum("process_open_fds"), m.sum("process_max_fds")
	switch {
	case most > 0 && open > fullShare*most:
		d.add("descriptors-exhausted", Critical, subject, docSystems, fmt.Sprintf("it has %.0f of %.0f file descriptors open", open, most), on(node, "systemctl edit hostd  # [Service] LimitNOFILE=1048576"), on(node, "systemctl restart hostd"))
	case most > 0 && most < minDescriptors:
		d.add("descriptors-few", Warning, subject, docSystems, fmt.Sprintf("its limit of %.0f open files and connections is below %d", most, minDescriptors), on(node, "systemctl edit hostd  # [Service] LimitNOFILE=1048576"), on(node, "systemctl restart hostd"))
	}
	used, limit := m.sum("process_resident_memory_bytes"), m.sum("go_gc_gomemlimit_bytes")
	if limit > 0 && limit < 1<<60 && used > fullShare*limit {
		d.add("memory-near-limit", Warning, subject, docSystems, fmt.Sprintf("it uses %.0f MiB of its memory limit of %.0f MiB: it spends its time in garbage collection, or is killed", used/(1<<20), limit/(1<<20)), on(node, "systemctl edit hostd  # [Service] MemoryMax="), on(node, "systemctl restart hostd"))
	}
	if n := m.sum("hostd_dead_letters"); n > 0 {
		d.add("dead-letters", Warning, subject, docEntity+"#dead-letters", fmt.Sprintf("the shards that it leads have %.0f dead letters", n), "hostd entity deadletters ls")
	}
	if n := m.sum("hostd_audit_log_lost_lines_total"); n > 0 {
		d.add("audit-lines-lost", Critical, subject, docAudit, fmt.Sprintf("%.0f lines of its audit log could not be written since its start", n), on(node, "df -h DATA-DIR"), on(node, "journalctl -u hostd -g audit"))
	}
	for _, s := range m["hostd_tls_reload_failures_total"] {
		if s.value > 0 {
			d.add("reload-failed", Warning, subject, docTLS+"#rotate-certificates", fmt.Sprintf("its %s certificate files could not be reloaded; the previous ones stay in use", s.label("use")), on(node, "hostd serve --check"))
		}
	}
	if m.sum("hostd_module_trust_reload_failures_total") > 0 {
		d.add("reload-failed", Warning, subject, docModules, "its module-trust-file could not be reloaded; the previous keys stay in use", on(node, "hostd serve --check"))
	}
	if m.sum("hostd_auth_reload_failures_total") > 0 {
		d.add("reload-failed", Warning, subject, "docs/operating/authentication.md", "a credential file or the issuer's keys could not be reloaded; the previous contents stay in use", on(node, "hostd serve --check"))
	}
	for _, s := range m["hostd_type_signature_faults"] {
		if s.value > 0 {
			d.add("signature-not-trusted", Warning, "type "+cli.Clean(s.label("entity_type")), docModules+"#types-that-are-not-served", fmt.Sprintf("%s does not trust its module's signature: %s", node, s.label("reason")), "hostd module sign FILE.wasm --key KEY --out FILE.sig", "hostd module push FILE.wasm --signature FILE.sig")
		}
	}
}

// entityType looks at quarantined entities and the rollout of a type.
func (d *diagnosis) entityType(t *typeFacts) {
	name := cli.Clean(t.Name)
	subject := "type " + name
	if n := len(t.Quarantined); n > 0 {
		count := fmt.Sprint(n)
		if t.More {
			count = fmt.Sprintf("more than %d", n)
		}
		ids := make([]string, n)
		for i, id := range t.Quarantined {
			ids[i] = cli.Clean(id)
		}
		d.add("entities-quarantined", Warning, subject, docEntity+"#quarantined-entities",
			fmt.Sprintf("%s of its entities are quarantined, because its module fails on them: %s", count, some(ids)),
			"hostd entity get "+name+" "+argument(t.Quarantined[0]), "hostd logs "+name, "hostd entity clear "+name+" --all")
	}
	r := t.Rollout
	show := "hostd module rollout " + name
	switch r.GetState() {
	case modulev1.Rollout_STATE_PAUSED:
		d.add("rollout-stuck", Warning, subject, docTypes+"#canary-rollout", "its rollout is paused: "+note(r), show+" --resume", show+" --abort")
	case modulev1.Rollout_STATE_REJECTED:
		d.add("rollout-stuck", Warning, subject, docTypes+"#truncated-histories", "the new module was not activated: "+note(r), "hostd module verify "+name+" "+r.GetDigest())
	case modulev1.Rollout_STATE_ABORTED:
		d.add("rollout-stuck", Warning, subject, docTypes+"#promote-or-abort", fmt.Sprintf("its rollout was aborted, and the old module fails on %d entities: %s", len(r.GetRemainingEntityIds()), note(r)), show)
	case modulev1.Rollout_STATE_WRITE_PAUSED, modulev1.Rollout_STATE_ABORTING:
		d.add("rollout-stuck", Warning, subject, docTypes+"#promote-or-abort", "its entities are returning to the old module: "+note(r), show)
	case modulev1.Rollout_STATE_RUNNING:
		if due := r.GetDueAt(); due != nil && d.facts.Now.Sub(due.AsTime()) > stepOverdue {
			d.add("rollout-stuck", Warning, subject, docTypes+"#automatic-steps", "the next step of its rollout was due at "+due.AsTime().UTC().Format(time.RFC3339), "hostd cluster status", show+" --promote", show+" --abort")
		}
	}
	if r == nil && t.Aborted != "" {
		d.add("rollout-aborted", Note, subject, docTypes+"#automatic-abort", "its last rollout was aborted: "+cli.Clean(t.Aborted), "hostd module history "+name)
	}
}

func note(r *modulev1.Rollout) string {
	return cmp.Or(cli.Clean(r.GetNote()), "no reason was recorded")
}
