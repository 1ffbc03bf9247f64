package peer

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/hostd/hostd/sharding"
)

// Format is the version of everything between nodes.
const Format = 1

// Headers of a hello.
const (
	headerFormat      = "Hostd-Format"
	headerCluster     = "Hostd-Cluster"
	headerNode        = "Hostd-Node"
	headerIncarnation = "Hostd-Incarnation"
	headerTo          = "Hostd-To"
	// headerLink numbers the links that a node makes to another: those of a
	// start grow, so that one that arrives late is known to be old.
	headerLink = "Hostd-Link"
)

// Hello is who speaks: it stands in the headers of every call and answer.
type Hello struct {
	Cluster     string
	Node        sharding.NodeID
	Incarnation uint64
}

func (h Hello) write(to http.Header) {
	to[headerFormat] = []string{strconv.Itoa(Format)}
	if h.Cluster != "" {
		to[headerCluster] = []string{h.Cluster}
	}
	to[headerNode] = []string{string(h.Node)}
	to[headerIncarnation] = []string{strconv.FormatUint(h.Incarnation, 10)}
}

// readHello reads and checks the form of a hello.
func readHello(from http.Header) (Hello, error) {
	if f := from.Get(headerFormat); f != strconv.Itoa(Format) {
		return Hello{}, fmt.Errorf("%w: %.20q, this node speaks %d", ErrFormat, f, Format)
	}
	h := Hello{Cluster: from.Get(headerCluster), Node: sharding.NodeID(from.Get(headerNode))}
	incarnation, err := strconv.ParseUint(from.Get(headerIncarnation), 10, 64)
	if err != nil || incarnation == 0 || !validName(string(h.Node)) || h.Cluster != "" && !validName(h.Cluster) {
		return Hello{}, fmt.Errorf("%w: the hello is malformed", ErrFormat)
	}
	h.Incarnation = incarnation
	return h, nil
}

type helloKey struct{}

// CallerOf returns who makes the call that a Control serves.
func CallerOf(ctx context.Context) Hello {
	h, _ := ctx.Value(helloKey{}).(Hello)
	return h
}

// hello is what this node says of itself.
func (p *Peers) hello() Hello {
	return Hello{Cluster: p.Cluster(), Node: p.opts.Self, Incarnation: p.incarnation.Load()}
}

// accept judges a hello that arrived from another node, and returns the node.
// A newer start of a node ends the links of the older one.
func (p *Peers) accept(h Hello) (*peer, error) {
	if own := p.Cluster(); own == "" {
		return nil, fmt.Errorf("%w: node %s belongs to no cluster yet", ErrUnavailable, p.opts.Self)
	} else if h.Cluster != own {
		return nil, fmt.Errorf("%w: node %s is of cluster %q, node %s of %q", ErrWrongCluster, h.Node, h.Cluster, p.opts.Self, own)
	}
	if h.Node == p.opts.Self {
		return nil, fmt.Errorf("%w: another process calls itself %s", ErrWrongNode, h.Node)
	}
	q, err := p.remember(h.Node)
	if err != nil {
		return nil, err
	}
	known := q.incarnation.Load()
	for h.Incarnation > known {
		if q.incarnation.CompareAndSwap(known, h.Incarnation) {
			if known != 0 {
				q.restarted(h.Incarnation)
			}
			return q, nil
		}
		known = q.incarnation.Load()
	}
	if h.Incarnation < known {
		return nil, fmt.Errorf("%w: start %d of node %s, %d was heard", ErrOldIncarnation, h.Incarnation, h.Node, known)
	}
	return q, nil
}
