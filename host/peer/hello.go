package peer

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Headers of a hello.
const (
	// headerFormat contains the lowest supported cluster version, which is the
	// only header that the first release reads. headerLevels contains the
	// range.
	headerFormat      = "Hostd-Format"
	headerLevels      = "Hostd-Levels"
	headerCluster     = "Hostd-Cluster"
	headerNode        = "Hostd-Node"
	headerIncarnation = "Hostd-Incarnation"
	headerTo          = "Hostd-To"
	// headerLink numbers the links that a node makes to another. The numbers
	// of one incarnation increase, so that a link that arrives late is
	// recognized as old.
	headerLink = "Hostd-Link"
)

// Hello identifies a node. It is in the headers of every call and answer.
type Hello struct {
	Cluster     string
	Node        sharding.NodeID
	Incarnation uint64
	Speaks      sharding.VersionRange
	// Proven means that the node's TLS certificate names it.
	Proven bool
}

// identify checks the name that a node gives itself against the certificate of
// its connection, if there is one.
func identify(says, node string, proven bool) error {
	if proven && says != node {
		return fmt.Errorf("%w: the caller claims to be node %.200q, but has the certificate of node %s", ErrWrongIdentity, says, node)
	}
	return nil
}

func (h Hello) write(to http.Header) {
	speaks := h.Speaks.WithDefault()
	to[headerFormat] = []string{strconv.FormatUint(uint64(speaks.Min), 10)}
	to[headerLevels] = []string{fmt.Sprintf("%d-%d", speaks.Min, speaks.Max)}
	if h.Cluster != "" {
		to[headerCluster] = []string{h.Cluster}
	}
	to[headerNode] = []string{string(h.Node)}
	to[headerIncarnation] = []string{strconv.FormatUint(h.Incarnation, 10)}
}

// readHello parses a hello and checks its form.
func readHello(from http.Header) (Hello, error) {
	speaks, err := readLevels(from)
	if err != nil {
		return Hello{}, err
	}
	h := Hello{Speaks: speaks, Cluster: from.Get(headerCluster), Node: sharding.NodeID(from.Get(headerNode))}
	incarnation, err := strconv.ParseUint(from.Get(headerIncarnation), 10, 64)
	if err != nil || incarnation == 0 || !validName(string(h.Node)) || h.Cluster != "" && !validName(h.Cluster) {
		return Hello{}, fmt.Errorf("%w: the handshake is malformed", ErrFormat)
	}
	h.Incarnation = incarnation
	return h, nil
}

// readLevels parses the range of supported cluster versions. A node of the
// first release sends only one version.
func readLevels(from http.Header) (l sharding.VersionRange, err error) {
	least, most := from.Get(headerFormat), from.Get(headerFormat)
	if text := from.Get(headerLevels); text != "" {
		least, most, _ = strings.Cut(text, "-")
	}
	for _, f := range []struct {
		level *sharding.ClusterVersion
		text  string
	}{{&l.Min, least}, {&l.Max, most}} {
		n, err := strconv.ParseUint(f.text, 10, 32)
		if err != nil || n == 0 {
			return l, fmt.Errorf("%w: cluster versions %.20q to %.20q are not a range", ErrFormat, least, most)
		}
		*f.level = sharding.ClusterVersion(n)
	}
	if l.Validate() != nil || l.Max < sharding.MinVersion || l.Min > sharding.MaxVersion {
		return l, fmt.Errorf("%w: the other node supports %v, this node supports %v", ErrFormat, l, sharding.SupportedVersions)
	}
	return l, nil
}

type helloKey struct{}

// CallerOf returns the caller of the call that a Control serves.
func CallerOf(ctx context.Context) Hello {
	h, _ := ctx.Value(helloKey{}).(Hello)
	return h
}

// hello returns this node's hello.
func (p *Peers) hello() Hello {
	return Hello{Cluster: p.Cluster(), Node: p.opts.Self, Incarnation: p.incarnation.Load(), Speaks: sharding.SupportedVersions}
}

// accept checks a hello of another node and returns the node.
func (p *Peers) accept(h Hello) (*peer, error) {
	if err := p.checkHello(h); err != nil {
		return nil, err
	}
	return p.meet(h)
}

// checkHello rejects a node of a different cluster, a node that does not
// support the cluster version, and an incarnation that an operator put down.
func (p *Peers) checkHello(h Hello) error {
	if own := p.Cluster(); own == "" {
		return fmt.Errorf("%w: node %s belongs to no cluster yet", ErrUnavailable, p.opts.Self)
	} else if h.Cluster != own {
		return fmt.Errorf("%w: node %s belongs to cluster %q, node %s to %q", ErrWrongCluster, h.Node, h.Cluster, p.opts.Self, own)
	}
	if h.Node == p.opts.Self {
		return fmt.Errorf("%w: a different process uses the node id %s", ErrWrongNode, h.Node)
	}
	if version := p.opts.version(); !h.Speaks.Contains(version) {
		return fmt.Errorf("%w: the cluster is at version %d, node %s supports %v: it needs a different release", ErrFormat, version, h.Node, h.Speaks)
	}
	return p.mayStart(h)
}

// meet returns the node of a hello. If the incarnation is new, meet ends the
// links of the previous incarnation. It rejects an incarnation that is older
// than the one in the metadata or, before there is metadata, older than the
// latest incarnation seen.
func (p *Peers) meet(h Hello) (*peer, error) {
	confirmed, judged := uint64(0), p.confirmed.Load()
	if judged != nil {
		confirmed = (*judged)(h.Node)
	}
	if err := meta.CheckIncarnation(h.Node, h.Incarnation, p.opts.Self, time.Now(), confirmed); err != nil {
		p.future.note(err, time.Now(), p.opts.Logger)
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	q, err := p.addPeer(h.Node)
	if err != nil {
		return nil, err
	}
	if said := q.speaks.Load(); said == nil || *said != h.Speaks {
		q.speaks.Store(&h.Speaks)
	}
	for {
		known := q.incarnation.Load()
		oldest := known
		if judged != nil {
			oldest = confirmed
		}
		switch {
		case h.Incarnation == known:
			return q, nil
		case h.Incarnation < oldest:
			return nil, fmt.Errorf("%w: start %d of node %s is older than start %d", ErrOldIncarnation, h.Incarnation, h.Node, oldest)
		case q.incarnation.CompareAndSwap(known, h.Incarnation):
			if known != 0 {
				q.onRestart(h.Incarnation)
			}
			return q, nil
		}
	}
}
