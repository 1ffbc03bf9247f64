package sim

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// memStore is an in-memory multi-version store for the product's state machine.
// A power cut loses an arbitrary part of the versions above the durable
// version.
type memStore struct {
	w        *World
	keys     []string // all keys, sorted
	versions map[string][]written
	highest  uint64
	durable  uint64
	discard  uint64
	pruned   uint64
	start    int            // counts starts of the process; views of an earlier process are invalid
	views    map[uint64]int // number of open views by version
	running  bool           // the process runs and its machine is open
	lied     map[sharding.ShardID]bool
	hid      map[sharding.ShardID]bool // shards of which a scan left out a row
}

// written is the body of a key in one version; nil if the version deleted the
// key.
type written struct {
	version uint64
	body    []byte
}

func newMemStore(w *World) *memStore {
	return &memStore{w: w, versions: map[string][]written{}, views: map[uint64]int{}, lied: map[sharding.ShardID]bool{}, hid: map[sharding.ShardID]bool{}}
}

// crash ends the process. A power cut also loses some of the versions that are
// not durable.
func (s *memStore) crash(power bool) {
	s.start++
	s.running = false
	clear(s.views)
	clear(s.lied)
	clear(s.hid)
	if !power {
		return
	}
	for _, key := range s.keys {
		s.versions[key] = slices.DeleteFunc(s.versions[key], func(v written) bool { return v.version > s.durable && s.w.rng.IntN(2) == 0 })
	}
}

// settle makes some of the versions durable.
func (s *memStore) settle() {
	if s.durable < s.highest {
		s.durable += 1 + s.w.rng.Uint64N(s.highest-s.durable)
	}
}

func (s *memStore) MaxVersion() uint64 { return s.highest }

func (s *memStore) Watermark() uint64 { return s.durable }

func (s *memStore) SetDiscard(version uint64) { s.discard = max(s.discard, version) }

// prune removes versions that no view can read any more.
func (s *memStore) prune() {
	upTo := s.discard
	for v := range s.views {
		upTo = min(upTo, v)
	}
	if upTo <= s.pruned {
		return
	}
	s.pruned = upTo
	s.keys = slices.DeleteFunc(s.keys, func(key string) bool {
		list := s.versions[key]
		n := 0
		for n+1 < len(list) && list[n+1].version <= upTo {
			n++
		}
		if list = list[n:]; len(list) > 0 && list[0].version <= upTo && list[0].body == nil {
			list = list[1:]
		}
		if s.versions[key] = list; len(list) == 0 {
			delete(s.versions, key)
		}
		return len(list) == 0
	})
}

func (s *memStore) Write(b *store.Batch, version uint64) error {
	if version <= s.highest {
		return fmt.Errorf("version %d is written after %d", version, s.highest)
	}
	b.Each(func(key, body []byte) {
		if body != nil {
			body = bytes.Clone(body)
		}
		s.put(string(key), written{version, body})
	})
	s.highest = version
	return nil
}

// put adds a version of a key. Of several writes in the same version, the last
// one wins.
func (s *memStore) put(key string, v written) {
	list, there := s.versions[key]
	if !there {
		i, _ := slices.BinarySearch(s.keys, key)
		s.keys = slices.Insert(s.keys, i, key)
	}
	if n := len(list); n > 0 && list[n-1].version == v.version {
		list = list[:n-1]
	}
	s.versions[key] = append(list, v)
}

func (s *memStore) RollBack(version uint64) (uint64, error) {
	if s.highest <= version {
		return version, nil
	}
	touched := false
	next := s.highest + 1
	for _, key := range slices.Clone(s.keys) {
		list := s.versions[key]
		if n := len(list); n > 0 && list[n-1].version > version {
			body, _ := s.read(key, version)
			s.put(key, written{next, body})
			touched = true
		}
	}
	if !touched {
		return version, nil
	}
	s.highest = next
	return next, nil
}

// read returns a key's body as of a version.
func (s *memStore) read(key string, version uint64) (body []byte, found bool) {
	list := s.versions[key]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].version <= version {
			return list[i].body, list[i].body != nil
		}
	}
	return nil, false
}

// applied returns the applied index of a generation of a shard as of a version.
func (s *memStore) applied(shard sharding.ShardID, generation uint32, version uint64) (index uint64) {
	body, found := s.read(string(store.AppendPrefix(nil, shard, generation, store.ClassApplied)), version)
	if found {
		a, err := store.DecodeApplied(body)
		if err != nil {
			s.w.fail("I9: the applied mark of shard %d: %v", shard, err)
		}
		index = a.Index
	}
	return index
}

func (s *memStore) ViewAt(version uint64) (kv.View, error) {
	if version < s.pruned {
		return nil, fmt.Errorf("version %d is read, and %d has been let go", version, s.pruned)
	}
	s.views[version]++
	return &memView{s: s, version: version, start: s.start}, nil
}

type memView struct {
	s       *memStore
	version uint64
	start   int
}

func (v *memView) Close() {
	if v.start != v.s.start {
		return
	}
	if v.s.views[v.version]--; v.s.views[v.version] == 0 {
		delete(v.s.views, v.version)
	}
}

func (v *memView) Get(key []byte, fn func(body []byte) error) (bool, error) {
	body, found := v.s.read(string(key), v.version)
	if found {
		if other, there, lied := v.lie(string(key), body); lied {
			body, found = other, there
		}
	}
	if !found {
		return false, nil
	}
	return true, fn(body)
}

// after returns the first key with the prefix that is not less than from.
func (v *memView) after(prefix, from string) (key string, body []byte, ok bool) {
	i, _ := slices.BinarySearch(v.s.keys, from)
	for ; i < len(v.s.keys) && strings.HasPrefix(v.s.keys[i], prefix); i++ {
		if body, found := v.s.read(v.s.keys[i], v.version); found {
			return v.s.keys[i], body, true
		}
	}
	return "", nil, false
}

func (v *memView) Scan(prefix, from []byte, fn func(key, body []byte) error) error {
	if from == nil {
		from = prefix
	}
	for next := string(from); ; {
		key, body, ok := v.after(string(prefix), next)
		if !ok {
			return nil
		}
		if v.hides(key) {
			next = key + "\x00"
			continue
		}
		if err := fn([]byte(key), body); err != nil {
			if errors.Is(err, store.ErrStop) {
				err = nil
			}
			return err
		}
		next = key + "\x00"
	}
}

func (v *memView) ScanBack(prefix []byte, fn func(key, body []byte) error) error {
	type pair struct{ key, body []byte }
	var all []pair
	err := v.Scan(prefix, nil, func(key, body []byte) error {
		all = append(all, pair{slices.Clone(key), slices.Clone(body)})
		return nil
	})
	for _, p := range slices.Backward(all) {
		if err == nil {
			err = fn(p.key, p.body)
		}
	}
	if errors.Is(err, store.ErrStop) {
		return nil
	}
	return err
}

func (v *memView) ScanKeys(prefix, from []byte, limit int, fn func(key []byte)) (more bool, err error) {
	err = v.Scan(prefix, from, func(key, _ []byte) error {
		if limit == 0 {
			more = true
			return store.ErrStop
		}
		limit--
		fn(key)
		return nil
	})
	return more, err
}

func (v *memView) Cursor(prefix []byte) kv.Cursor {
	return &memCursor{v: v, prefix: string(prefix), next: string(prefix)}
}

type memCursor struct {
	v            *memView
	prefix, next string
}

func (c *memCursor) Next() (key, body []byte, err error) {
	k, body, ok := c.v.after(c.prefix, c.next)
	if !ok {
		return nil, nil, nil
	}
	c.next = k + "\x00"
	return []byte(k), body, nil
}

func (c *memCursor) Close() {}

func (v *memView) Generations() (generations []store.Generation, err error) {
	for next := ""; ; {
		key, _, ok := v.after("", next)
		if !ok {
			return generations, nil
		}
		k, err := store.ParseKey([]byte(key))
		if err != nil {
			return nil, err
		}
		generation := store.Generation{Shard: k.Shard, Generation: k.Generation}
		generation.Marked, err = v.Get(store.AppendPrefix(nil, k.Shard, k.Generation, store.ClassApplied), func(body []byte) (err error) {
			generation.Applied, err = store.DecodeApplied(body)
			return err
		})
		if err != nil {
			return nil, err
		}
		generations = append(generations, generation)
		if k.Generation == math.MaxUint32 {
			return nil, errors.New("the last generation is in use")
		}
		next = string(store.AppendPrefix(nil, k.Shard, k.Generation+1, 0))
	}
}
