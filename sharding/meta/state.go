package meta

import (
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/hostd/hostd/sharding"
)

// Stored keys. Values are JSON with a version; they are part of the format.
//
//	cluster            Cluster
//	counters           the next replica id and the newest revisions
//	policy             Policy
//	member/NODE        Member
//	shard/NUMBER       Placement (ten decimal digits, so that keys sort)
//	module/DIGEST      Module
//	binding/TYPE       Binding
//	setting/KEY        version 1: the bytes; version 2: the bytes and a revision
const (
	keyCluster    = "cluster"
	keyCounters   = "counters"
	keyPolicy     = "policy"
	prefixMember  = "member/"
	prefixShard   = "shard/"
	prefixModule  = "module/"
	prefixBinding = "binding/"
	prefixSetting = "setting/"
)

const (
	valueVersion   = 1
	settingVersion = 2
)

type counters struct {
	NextReplica     sharding.ReplicaID `json:"nextReplica"`
	Revision        uint64             `json:"revision"`
	SettingRevision uint64             `json:"settingRevision,omitempty"`
}

// State is the metadata machine. Apply and Restore belong to one goroutine at
// a time; View may be called from any.
type State struct {
	current atomic.Pointer[View]
}

// New returns the state of a metadata shard that was never written.
func New() *State {
	s := &State{}
	s.current.Store(empty())
	return s
}

func empty() *View {
	return &View{
		counters:   counters{NextReplica: FounderReplica},
		members:    map[sharding.NodeID]Member{},
		placements: map[sharding.ShardID]Placement{},
		modules:    map[Digest]Module{},
		bindings:   map[string]Binding{},
		settings:   map[string]Setting{},
	}
}

// View returns the metadata as of the last command applied. It never blocks.
func (s *State) View() *View { return s.current.Load() }

// Apply carries out the committed command at the log index and returns the
// pairs to store, in order, and the result for DecodeResult. A command that
// cannot be carried out changes nothing and says so in the result. Both
// results are the caller's; body is not kept.
func (s *State) Apply(index uint64, body []byte) (writes []KV, result []byte) {
	next := *s.current.Load()
	next.index = index
	t := transition{view: &next}
	res, err := t.apply(body)
	if err != nil {
		undone := *s.current.Load()
		undone.index = index
		s.current.Store(&undone)
		return nil, encodeResult(Result{}, err)
	}
	res.Changed = len(t.writes) > 0
	s.current.Store(&next)
	return t.writes, encodeResult(res, nil)
}

// Restore puts back one stored pair; the order of pairs does not matter. An
// unknown key or an unreadable value is ErrCorrupt, and the state is then not
// fit for use. Neither slice is kept.
func (s *State) Restore(key, value []byte) error {
	next := *s.current.Load()
	next.members, next.placements = maps.Clone(next.members), maps.Clone(next.placements)
	next.modules, next.bindings, next.settings = maps.Clone(next.modules), maps.Clone(next.bindings), maps.Clone(next.settings)
	if err := next.restore(string(key), value); err != nil {
		return fmt.Errorf("%w: key %q", ErrCorrupt, key)
	}
	s.current.Store(&next)
	return nil
}

// put replaces the map by a copy that has the pair: views share maps.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	next := maps.Clone(*m)
	next[key] = value
	*m = next
}
