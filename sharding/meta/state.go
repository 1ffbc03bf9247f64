package meta

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/hostd/hostd/sharding"
)

// Stored keys. Values are JSON with a version; they are part of the format.
//
//	cluster            Cluster
//	counters           the next replica id and the newest binding revision
//	member/NODE        Member
//	shard/NUMBER       Placement (ten decimal digits, so that keys sort)
//	module/DIGEST      Module
//	binding/TYPE       Binding
//	setting/KEY        the value's bytes
const (
	keyCluster    = "cluster"
	keyCounters   = "counters"
	prefixMember  = "member/"
	prefixShard   = "shard/"
	prefixModule  = "module/"
	prefixBinding = "binding/"
	prefixSetting = "setting/"
)

const valueVersion = 1

// stored is the envelope of a value.
type stored struct {
	Version int             `json:"v"`
	Value   json.RawMessage `json:"value"`
}

type counters struct {
	NextReplica sharding.ReplicaID `json:"nextReplica"`
	Revision    uint64             `json:"revision"`
}

// State is the metadata machine. Apply and Restore belong to one goroutine at
// a time; View may be called from any.
type State struct {
	current atomic.Pointer[View]
}

// New returns the state of a metadata shard that was never written.
func New() *State {
	s := &State{}
	s.current.Store(&View{
		nextReplica: FounderReplica,
		members:     map[sharding.NodeID]Member{},
		placements:  map[sharding.ShardID]Placement{},
		modules:     map[Digest]Module{},
		bindings:    map[string]Binding{},
		settings:    map[string][]byte{},
	})
	return s
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
	if err := next.restore(string(key), value); err != nil {
		return fmt.Errorf("%w: key %q", ErrCorrupt, key)
	}
	s.current.Store(&next)
	return nil
}

func (v *View) restore(key string, value []byte) error {
	kind, name, _ := strings.Cut(key, "/")
	switch kind + key[len(kind):len(key)-len(name)] {
	case keyCluster:
		v.created = true
		return unwrap(value, &v.cluster)
	case keyCounters:
		var c counters
		err := unwrap(value, &c)
		v.nextReplica, v.revision = c.NextReplica, c.Revision
		return err
	case prefixMember:
		return restoreInto(&v.members, sharding.NodeID(name), value)
	case prefixShard:
		n, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			return err
		}
		return restoreInto(&v.placements, sharding.ShardID(n), value)
	case prefixModule:
		var d Digest
		if err := d.UnmarshalText([]byte(name)); err != nil {
			return err
		}
		return restoreInto(&v.modules, d, value)
	case prefixBinding:
		return restoreInto(&v.bindings, name, value)
	case prefixSetting:
		return restoreInto(&v.settings, name, value)
	}
	return fmt.Errorf("unknown key")
}

func restoreInto[K comparable, V any](m *map[K]V, key K, value []byte) error {
	var decoded V
	if err := unwrap(value, &decoded); err != nil {
		return err
	}
	put(m, key, decoded)
	return nil
}

// put replaces the map by a copy that has the pair: views share maps.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	next := maps.Clone(*m)
	next[key] = value
	*m = next
}

func wrap(v any) []byte { return mustJSON(stored{Version: valueVersion, Value: mustJSON(v)}) }

func unwrap(value []byte, into any) error {
	var s stored
	if err := strictJSON(value, &s); err != nil {
		return err
	}
	if s.Version != valueVersion {
		return fmt.Errorf("version %d", s.Version)
	}
	return strictJSON(s.Value, into)
}

func shardKey(shard sharding.ShardID) string { return fmt.Sprintf("%s%010d", prefixShard, shard) }
