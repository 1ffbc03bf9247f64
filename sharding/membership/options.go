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
	// Accept returns the next gossip connection. It fails after Close.
	Accept() (net.Conn, error)
	// Dial connects to the gossip half of another node's port. The address is
	// an IP address or a host name, and a port.
	Dial(ctx context.Context, address string) (net.Conn, error)
	// Close makes Accept fail.
	Close() error
}

// Limits on the fields that a node announces, in bytes. Everything together
// must fit into 512 bytes.
const (
	maxNodeBytes    = 128
	maxAddressBytes = 128
	maxIDBytes      = 64
	maxLabelBytes   = 200
)

// Options configure a Membership. A zero duration means the default.
type Options struct {
	// Node and Incarnation identify this process of the node. Later processes
	// have higher incarnations.
	Node        sharding.NodeID
	Incarnation uint64
	// Address is the host:port at which other nodes reach this node, at most
	// 128 bytes. A host name is resolved once, at start; nodes that know the
	// name resolve it again for each connection.
	Address string
	// Cluster is the cluster's id, at most 64 bytes; empty while the node
	// belongs to none. Nodes of other clusters are ignored.
	Cluster string
	// Disk is the id of the node's data directory, at most 64 bytes.
	Disk string

	// Label is the cluster's name, at most 200 bytes. Nodes with different
	// labels cannot communicate.
	Label string
	// Key encrypts all gossip, using AES-128, -192 or -256 for 16, 24 or 32
	// bytes. If empty, gossip is neither encrypted nor authenticated.
	Key []byte
	// Seeds are addresses of nodes through which to find the others: host:port,
	// or DNS names as described in package seeds. A name with several addresses
	// stands for all of them and is resolved again for each attempt.
	Seeds []string

	// Transport carries the gossip. Close closes it.
	Transport Transport
	// Lookup resolves names; the zero value uses the system's resolver.
	Lookup seeds.Lookup
	// Latest returns the highest acceptable incarnation of a node; nodes with a
	// higher incarnation are ignored. Latest must not block. If Latest is nil,
	// all incarnations are accepted.
	Latest func(node sharding.NodeID) uint64
	// Jitter returns a duration below d. If Jitter is nil, the duration is random.
	Jitter func(d time.Duration) time.Duration
	// Logger receives messages for operators; if nil, they are discarded.
	Logger *slog.Logger

	// Rejoin is how often to retry unreachable nodes, and seeds whose addresses
	// belong to no reachable node (default 5 s, jittered up to double). Alone
	// is used instead while no other node is reachable (default 500 ms,
	// likewise).
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

// Validate returns all errors in the options, joined.
func (o Options) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(o.Node != "" && len(o.Node) <= maxNodeBytes, "the node id must have 1 to %d bytes, got %d", maxNodeBytes, len(o.Node))
	check(o.Incarnation > 0, "the incarnation must not be 0")
	check(len(o.Address) <= maxAddressBytes, "the address must have at most %d bytes, got %d", maxAddressBytes, len(o.Address))
	check(len(o.Cluster) <= maxIDBytes, "the cluster id must have at most %d bytes, got %d", maxIDBytes, len(o.Cluster))
	check(len(o.Disk) <= maxIDBytes, "the disk id must have at most %d bytes, got %d", maxIDBytes, len(o.Disk))
	check(len(o.Label) <= maxLabelBytes, "the label must have at most %d bytes, got %d", maxLabelBytes, len(o.Label))
	check(o.Transport != nil, "the transport must be set")
	check(o.Rejoin >= 0 && o.Alone >= 0, "durations must not be negative")
	switch len(o.Key) {
	case 0, 16, 24, 32:
	default:
		check(false, "the key must have 16, 24 or 32 bytes, got %d", len(o.Key))
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
