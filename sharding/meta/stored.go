package meta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hostd/hostd/sharding"
)

// Dump returns the whole state as stored pairs, sorted by key. They belong to
// the caller. Loading them produces an equal state.
func (s *State) Dump() []KV { return s.View().dump() }

func (v *View) dump() []KV {
	var out []KV
	add := func(key string, value []byte) { out = append(out, KV{Key: []byte(key), Value: value}) }
	for _, b := range v.Activations() {
		add(prefixActivation+b.EntityType, wrap(b))
	}
	if v.created {
		add(keyCluster, wrap(v.cluster))
		add(keyCounters, wrap(v.counters))
	}
	if v.level > sharding.Version1 {
		add(keyClusterVersion, wrap(clusterVersionRaise{Level: v.level}))
	}
	for _, m := range v.Members() {
		add(prefixMember+string(m.Node), wrap(m))
	}
	for _, d := range v.DownedStarts() {
		add(prefixDowned+string(d.Node), wrap(downedStart{Incarnation: d.Incarnation}))
	}
	for _, node := range slices.Sorted(maps.Keys(v.left)) {
		add(prefixLeft+string(node), wrap(v.left[node]))
	}
	for _, m := range v.Modules() {
		add(prefixModule+m.Digest.String(), wrap(m))
	}
	if v.policy != nil {
		add(keyPolicy, wrap(v.policy))
	}
	for _, r := range v.Roles() {
		add(prefixRole+r.Name, wrap(r))
	}
	for _, b := range v.RoleBindings() {
		add(prefixRoleBinding+b.Subject, wrap(b))
	}
	for _, t := range v.Tokens() {
		add(prefixToken+t.Name, wrap(t))
	}
	for entityType, list := range v.verified {
		add(prefixVerified+entityType, wrap(list))
	}
	for _, k := range v.SettingKeys() {
		add(prefixSetting+k, wrapSetting(v.settings[k]))
	}
	for _, p := range v.Placements() {
		add(shardKey(p.Shard), wrap(p))
	}
	return sortPairs(out)
}

// Load replaces the state with the pairs, which may be in any order, as of the
// log index. On error (ErrCorrupt, or ErrUnsupported for pairs of a later
// release) the state is unchanged. The slices are not retained.
func (s *State) Load(index uint64, pairs []KV) error {
	next := empty()
	next.index = index
	for _, kv := range pairs {
		if err := next.restore(string(kv.Key), kv.Value); err != nil {
			return keyError(kv.Key, err)
		}
	}
	s.current.Store(next)
	return nil
}

// keyError adds the key to an error. Errors other than ErrUnsupported become
// ErrCorrupt.
func keyError(key []byte, err error) error {
	if errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("%w (key %q)", err, key)
	}
	return fmt.Errorf("%w: key %q", ErrCorrupt, key)
}

// restore restores one pair into a view with maps of its own.
func (v *View) restore(key string, value []byte) error {
	kind, name, _ := strings.Cut(key, "/")
	switch kind + key[len(kind):len(key)-len(name)] {
	case keyCluster:
		v.created = true
		return unwrap(value, &v.cluster)
	case keyCounters:
		return unwrap(value, &v.counters)
	case keyPolicy:
		v.policy = new(Policy)
		return unwrap(value, v.policy)
	case keyClusterVersion:
		return v.restoreClusterVersion(value)
	case prefixMember:
		return v.restoreMember(sharding.NodeID(name), value)
	case prefixDowned:
		return v.restoreDowned(sharding.NodeID(name), value)
	case prefixLeft:
		return v.restoreLeft(sharding.NodeID(name), value)
	case prefixShard:
		n, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			return err
		}
		return v.restorePlacement(sharding.ShardID(n), value)
	case prefixModule:
		var d Digest
		if err := d.UnmarshalText([]byte(name)); err != nil {
			return err
		}
		return restoreInto(v.modules, d, value)
	case prefixActivation:
		return restoreInto(v.activations, name, value)
	case prefixVerified:
		return restoreInto(v.verified, name, value)
	case prefixRole:
		return v.restoreRole(name, value)
	case prefixRoleBinding:
		return v.restoreRoleBinding(name, value)
	case prefixToken:
		return v.restoreToken(name, value)
	case prefixSetting:
		set, err := unwrapSetting(name, value)
		v.settings[name] = set
		return err
	}
	if kind == "" || !utf8.ValidString(key) {
		return errors.New("invalid key")
	}
	return fmt.Errorf("%w: unknown kind of key", ErrUnsupported)
}

func (v *View) restoreMember(node sharding.NodeID, value []byte) error {
	if err := restoreInto(v.members, node, value); err != nil {
		return err
	}
	if status := v.members[node].Status; !status.isKnown() {
		return fmt.Errorf("%w: member status %.40q", ErrUnsupported, string(status))
	}
	return nil
}

// restorePlacement sets First if it was not stored, which means that the
// placement has never changed.
func (v *View) restorePlacement(shard sharding.ShardID, value []byte) error {
	var p Placement
	if err := unwrap(value, &p); err != nil {
		return err
	}
	if len(p.First) == 0 {
		p.First = p.IDs(ReplicaVoter)
	}
	v.placements[shard] = p
	return nil
}

func restoreInto[K comparable, V any](m map[K]V, key K, value []byte) error {
	var decoded V
	if err := unwrap(value, &decoded); err != nil {
		return err
	}
	m[key] = decoded
	return nil
}

// stored is the envelope of a value.
type stored struct {
	Version int             `json:"v"`
	Value   json.RawMessage `json:"value"`
}

func wrap(v any) []byte { return mustJSON(stored{Version: valueVersion, Value: mustJSON(v)}) }

func unwrap(value []byte, into any) error {
	var s stored
	if err := strictJSON(value, &s); err != nil {
		return asUnsupported(value, &s, err)
	}
	if s.Version != valueVersion {
		return fmt.Errorf("%w: version %d", ErrUnsupported, s.Version)
	}
	return asUnsupported(s.Value, into, strictJSON(s.Value, into))
}

// asUnsupported turns an error of strictJSON into ErrUnsupported if the data is
// well-formed except for members that this release does not know.
func asUnsupported(data []byte, into any, err error) error {
	if err != nil && !errors.Is(err, ErrUnsupported) && json.Unmarshal(data, into) == nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

func wrapSetting(s Setting) []byte {
	return mustJSON(stored{Version: settingVersion, Value: mustJSON(storedSetting{Value: s.Value, Revision: s.Revision})})
}

func unwrapSetting(key string, value []byte) (Setting, error) {
	var s stored
	if err := asUnsupported(value, &s, strictJSON(value, &s)); err != nil {
		return Setting{}, err
	}
	var in storedSetting
	var err error
	switch s.Version {
	case valueVersion:
		err = strictJSON(s.Value, &in.Value)
	case settingVersion:
		err = asUnsupported(s.Value, &in, strictJSON(s.Value, &in))
	default:
		err = fmt.Errorf("%w: version %d", ErrUnsupported, s.Version)
	}
	return Setting{Key: key, Value: in.Value, Revision: in.Revision}, err
}

func sortPairs(pairs []KV) []KV {
	slices.SortFunc(pairs, func(a, b KV) int { return bytes.Compare(a.Key, b.Key) })
	return pairs
}

func shardKey(shard sharding.ShardID) string { return fmt.Sprintf("%s%010d", prefixShard, shard) }
