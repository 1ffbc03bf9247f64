package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/membership/seeds"
)

// Transport is the gossip half of a node's port.
type Transport interface {
	// Accept returns the next gossip connection; it fails after Close.
	Accept() (net.Conn, error)
	// Dial connects to the gossip half of another node's port, an IP address
	// and a port.
	Dial(ctx context.Context, address string) (net.Conn, error)
	// Close ends Accept.
	Close() error
}

// Bounds of what a node says of itself, in bytes: all of it has to fit into
// 512.
const (
	maxNodeBytes    = 128
	maxAddressBytes = 128
	maxIDBytes      = 64
	maxLabelBytes   = 200
)

// Options of a Membership. The zero value of a duration means its default.
type Options struct {
	// Node and Incarnation name this start of this node; a later start has a
	// higher incarnation.
	Node        sharding.NodeID
	Incarnation uint64
	// Address is where others reach this node, host:port; a name is looked up
	// once, when the membership starts. At most 128 bytes.
	Address string
	// Cluster is the cluster's id, at most 64 bytes; empty while the node
	// belongs to none. Nodes of another cluster are not seen.
	Cluster string
	// Disk is the id of the node's data directory, at most 64 bytes.
	Disk string

	// Label is the cluster's name, at most 200 bytes. Nodes with another do not
	// understand each other.
	Label string
	// Key encrypts everything, with AES-128, -192 or -256 by its length: 16, 24
	// or 32 bytes. Empty: nothing is encrypted or authenticated.
	Key []byte
	// Seeds are addresses of nodes to find the others through, host:port, or
	// names of DNS that have them, as package seeds says. A name with several
	// addresses stands for all of them, as of each attempt.
	Seeds []string

	// Transport carries the gossip. It is closed by Close.
	Transport Transport
	// Lookup looks names up; the zero value asks the system.
	Lookup seeds.Lookup
	// Latest is the highest incarnation that a node can have now: one that says
	// more is not seen. It must not block. nil: any is.
	Latest func(node sharding.NodeID) uint64
	// Jitter draws a duration below d; nil draws it at random.
	Jitter func(d time.Duration) time.Duration
	// Logger gets what operators should see; nil discards it.
	Logger *slog.Logger

	// Rejoin is how often nodes that are out of sight, and seeds that no node
	// in sight has the address of, are tried again (5 s, jittered up to twice);
	// as long as nobody is in sight, it is Alone (500 ms, likewise).
	Rejoin time.Duration
	Alone  time.Duration
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Latest == nil {
		o.Latest = func(sharding.NodeID) uint64 { return math.MaxUint64 }
	}
	if o.Jitter == nil {
		o.Jitter = rand.N[time.Duration]
	}
	if o.Rejoin == 0 {
		o.Rejoin = 5 * time.Second
	}
	if o.Alone == 0 {
		o.Alone = 500 * time.Millisecond
	}
	return o
}

// Validate joins all faults of the options.
func (o Options) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(o.Node != "" && len(o.Node) <= maxNodeBytes, "a node id has 1 to %d bytes, not %d", maxNodeBytes, len(o.Node))
	check(o.Incarnation > 0, "the incarnation is 0")
	check(len(o.Address) <= maxAddressBytes, "an address has at most %d bytes, not %d", maxAddressBytes, len(o.Address))
	check(len(o.Cluster) <= maxIDBytes, "a cluster id has at most %d bytes, not %d", maxIDBytes, len(o.Cluster))
	check(len(o.Disk) <= maxIDBytes, "a disk id has at most %d bytes, not %d", maxIDBytes, len(o.Disk))
	check(len(o.Label) <= maxLabelBytes, "a label has at most %d bytes, not %d", maxLabelBytes, len(o.Label))
	check(o.Transport != nil, "no transport")
	check(o.Rejoin >= 0 && o.Alone >= 0, "negative duration")
	switch len(o.Key) {
	case 0, 16, 24, 32:
	default:
		check(false, "a key has 16, 24 or 32 bytes, not %d", len(o.Key))
	}
	if err := checkAddress(o.Address); err != nil {
		faults = append(faults, err)
	}
	for _, seed := range o.Seeds {
		if err := seeds.Check(seed); err != nil {
			faults = append(faults, fmt.Errorf("seed: %w", err))
		}
	}
	return errors.Join(faults...)
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return fmt.Errorf("address %q is not host:port", address)
	}
	return nil
}
