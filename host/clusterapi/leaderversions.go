package clusterapi

import (
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hostd/hostd/sharding"
)

// lookInterval is how long the leaders are not looked up again: clients ask
// together, in a fail-over.
const lookInterval = 50 * time.Millisecond

// leaderVersions numbers the changes of who leads what, so that a client which asks
// again is told what has changed since. Its versions mean something to this
// start of this node alone.
type leaderVersions struct {
	epoch string

	mu      sync.Mutex
	looked  time.Time
	change  uint64
	leaders []sharding.NodeID // by shard
	changed []uint64          // by shard: the change that made it what it is
}

func newLeaderVersions() *leaderVersions { return &leaderVersions{epoch: rand.Text()} }

// look takes who leads what as of now.
func (b *leaderVersions) look(now time.Time, leaders func() []sharding.NodeID) {
	if !b.looked.IsZero() && now.Sub(b.looked) < lookInterval {
		return
	}
	b.looked = now
	fresh := leaders()
	if slices.Equal(fresh, b.leaders) {
		return
	}
	b.change++
	changed := make([]uint64, len(fresh))
	for i := range fresh {
		changed[i] = b.change
		if i < len(b.leaders) && b.leaders[i] == fresh[i] {
			changed[i] = b.changed[i]
		}
	}
	b.leaders, b.changed = fresh, changed
}

// since returns the leaders of the shards that have changed since a version, of
// all where that is none of these, and the version that they make.
func (b *leaderVersions) since(version string, now time.Time, leaders func() []sharding.NodeID) (changed []Shard, to string, partial bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look(now, leaders)
	epoch, number, _ := strings.Cut(version, ".")
	known, err := strconv.ParseUint(number, 10, 64)
	partial = epoch == b.epoch && err == nil && known <= b.change
	for i, leader := range b.leaders {
		if !partial || b.changed[i] > known {
			changed = append(changed, Shard{ID: sharding.ShardID(i), Leader: leader})
		}
	}
	return changed, b.epoch + "." + strconv.FormatUint(b.change, 10), partial
}
