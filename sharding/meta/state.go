package meta

import (
	"errors"
	"maps"
	"sync/atomic"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

// Stored keys. Values are JSON with a version; they are part of the format.
//
//	cluster            Cluster
//	counters           the next replica id and the newest revisions
//	policy             Policy
//	level              the level, where it was raised
//	member/NODE        Member
//	down/NODE          the start that an operator put down, of no member
//	shard/NUMBER       Placement (ten decimal digits, so that keys sort)
//	module/DIGEST      Module
//	binding/TYPE       Binding
//	verified/TYPE      what came of verifying modules
//	role/NAME          access.Role
//	rolebinding/SUBJECT access.Binding
//	token/NAME         access.Token
//	setting/KEY        version 1: the bytes; version 2: the bytes and a revision
const (
	keyCluster        = "cluster"
	keyCounters       = "counters"
	keyPolicy         = "policy"
	keyClusterVersion = "level"
	prefixMember      = "member/"
	prefixDowned      = "down/"
	prefixLeft        = "left/"
	prefixShard       = "shard/"
	prefixModule      = "module/"
	prefixBinding     = "binding/"
	prefixSetting     = "setting/"

	prefixRole        = "role/"
	prefixRoleBinding = "rolebinding/"
	prefixToken       = "token/"
	prefixVerified    = "verified/"
)

const (
	valueVersion   = 1
	settingVersion = 2
)

// counters are the numbers that only count up.
type counters struct {
	NextReplica     sharding.ReplicaID `json:"nextReplica"`
	Revision        uint64             `json:"revision"`
	SettingRevision uint64             `json:"settingRevision,omitempty"`
	RoleRevision    uint64             `json:"roleRevision,omitempty"` // from level 2 on
}

// State is the metadata machine. Apply and Load belong to one goroutine at
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
		downed:     map[sharding.NodeID]uint64{},
		left:       map[sharding.NodeID]leftNode{},
		placements: map[sharding.ShardID]Placement{},
		modules:    map[Digest]Module{},
		bindings:   map[string]Binding{},
		verified:   map[string]verifiedList{},
		settings:   map[string]Setting{},

		roles:        map[string]access.Role{},
		roleBindings: map[string]access.Binding{},
		tokens:       map[string]access.Token{},
	}
}

// View returns the metadata as of the last command applied. It never blocks.
func (s *State) View() *View { return s.current.Load() }

// Apply carries out the committed command at the log index and returns the
// pairs to store, in order, and the result for DecodeResult. A command that
// cannot be carried out changes nothing and says so in the result. Both
// results are the caller's; body is not kept.
//
// ErrUnsupported is of a command that this release does not know: the state is
// as it was, the command is not passed over, and nothing may be applied after
// it. Check refuses such a one before it is committed.
func (s *State) Apply(index uint64, body []byte) (writes []KV, result []byte, err error) {
	next := *s.current.Load()
	next.index = index
	t := transition{view: &next}
	res, err := t.apply(body)
	if errors.Is(err, ErrUnsupported) {
		return nil, nil, err
	}
	if err != nil {
		undone := *s.current.Load()
		undone.index = index
		s.current.Store(&undone)
		return nil, encodeResult(Result{}, err), nil
	}
	res.Changed = len(t.writes) > 0
	s.current.Store(&next)
	return t.writes, encodeResult(res, nil), nil
}

// put replaces the map by a copy that has the pair: views share maps.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	next := maps.Clone(*m)
	next[key] = value
	*m = next
}
