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

// lookInterval is how long looked-up leaders are reused, because many clients
// ask at the same time during a fail-over.
const lookInterval = 50 * time.Millisecond

// leaderVersions numbers the changes of shard leaders, so that a client can ask
// for the changes since its last call. Its versions are valid only for this node
// until it restarts.
type leaderVersions struct {
	epoch string

	mu      sync.Mutex
	looked  time.Time
	change  uint64
	leaders []sharding.NodeID // leaders by shard
	changed []uint64          // number of the last change of each shard
}

func newLeaderVersions() *leaderVersions { return &leaderVersions{epoch: rand.Text()} }

// look updates the leaders, at most once per lookInterval.
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

// since returns the leaders that have changed since a version, and the current
// version. If the version is not known, it returns all leaders and partial is
// false.
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
