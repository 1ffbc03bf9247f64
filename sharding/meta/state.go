package meta

import (
	"errors"
	"maps"
	"sync/atomic"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

// Stored keys. Values are versioned JSON. Both are part of the format.
//
//	cluster            Cluster
//	counters           next replica id and latest revisions
//	policy             Policy
//	level              cluster version, if it was raised
//	member/NODE        Member
//	down/NODE          start of a former member that an operator declared down
//	shard/NUMBER       Placement (ten decimal digits, so that keys sort)
//	module/DIGEST      Module
//	binding/TYPE       Binding
//	verified/TYPE      results of module verifications
//	role/NAME          access.Role
//	rolebinding/SUBJECT access.Binding
//	token/NAME         access.Token
//	setting/KEY        version 1: value; version 2: value and revision
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
	prefixActivation  = "binding/"
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

// counters are numbers that only increase.
type counters struct {
	NextReplica     sharding.ReplicaID `json:"nextReplica"`
	Revision        uint64             `json:"revision"`
	SettingRevision uint64             `json:"settingRevision,omitempty"`
	RoleRevision    uint64             `json:"roleRevision,omitempty"` // since version 2
}

// State is the state machine of the metadata shard. Apply and Load belong to
// one goroutine at a time; View may be called concurrently.
type State struct {
	current atomic.Pointer[View]
}

// New returns the state of an empty metadata shard.
func New() *State {
	s := &State{}
	s.current.Store(empty())
	return s
}

func empty() *View {
	return &View{
		counters:    counters{NextReplica: BootstrapReplica},
		members:     map[sharding.NodeID]Member{},
		downed:      map[sharding.NodeID]uint64{},
		left:        map[sharding.NodeID]leftNode{},
		placements:  map[sharding.ShardID]Placement{},
		modules:     map[Digest]Module{},
		activations: map[string]Activation{},
		verified:    map[string]verificationResults{},
		settings:    map[string]Setting{},

		roles:        map[string]access.Role{},
		roleBindings: map[string]access.Binding{},
		tokens:       map[string]access.Token{},
	}
}

// View returns the metadata as of the last applied command. It never blocks.
func (s *State) View() *View { return s.current.Load() }

// Apply applies the committed command at the log index. It returns the pairs to
// store, in order, and the result for DecodeResult. A command that fails
// changes nothing and its error is in the result. Both return values belong to
// the caller; body is not retained.
//
// If the command is unknown to this release, Apply returns ErrUnsupported. The
// state is unchanged and no later entry may be applied. Check rejects such
// commands before they are committed.
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

// put replaces the map by a copy that includes the pair, because views share
// maps.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	next := maps.Clone(*m)
	next[key] = value
	*m = next
}
