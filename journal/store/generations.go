package store

import (
	"fmt"
	"math"

	"github.com/dgraph-io/badger/v4"

	"github.com/hostd/hostd/sharding"
)

// Generation is what the store has of one generation of a shard.
type Generation struct {
	Shard      sharding.ShardID
	Generation uint32
	// Marked: it has an applied mark. A generation without one is being deleted,
	// or is a snapshot that was not installed to its end.
	Marked  bool
	Applied Applied
}

// Generations returns every generation of every shard that has a key in the
// view, in order. It costs a seek or two for each.
func (v *View) Generations() (generations []Generation, err error) {
	defer v.recovered([]byte{}, &err)
	defer faulting()()
	it := v.txn.NewIterator(badger.IteratorOptions{})
	defer it.Close()
	for next := []byte{0}; ; {
		if it.Seek(next); !it.Valid() {
			return generations, nil
		}
		k, err := ParseKey(it.Item().Key())
		if err != nil {
			return nil, err
		}
		generation := Generation{Shard: k.Shard, Generation: k.Generation}
		counted := true
		generation.Marked, err = v.Get(AppendPrefix(nil, k.Shard, k.Generation, ClassApplied), func(body []byte) (err error) {
			counted = len(body) >= appliedBytes
			generation.Applied, err = DecodeApplied(body)
			return err
		})
		if err == nil && !counted {
			generation.Applied.Bytes, err = v.recordBytes(k.Shard, k.Generation)
		}
		if err != nil {
			return nil, err
		}
		generations = append(generations, generation)
		switch {
		case k.Generation < math.MaxUint32:
			next = AppendPrefix(next[:0], k.Shard, k.Generation+1, 0)
		case k.Shard < math.MaxUint32:
			next = AppendPrefix(next[:0], k.Shard+1, 0, 0)
		default:
			return generations, nil
		}
	}
}

// recordBytes sums what an applied mark of an earlier release does not say.
func (v *View) recordBytes(shard sharding.ShardID, generation uint32) (sum uint64, err error) {
	err = v.Scan(AppendPrefix(nil, shard, generation, ClassEntity), nil, func(_, body []byte) error {
		h, err := DecodeHead(body)
		sum += h.Bytes
		return err
	})
	return sum, err
}

// AppendGeneration appends what all keys of a shard's generation start with.
func AppendGeneration(dst []byte, shard sharding.ShardID, generation uint32) []byte {
	dst = AppendPrefix(dst, shard, generation, 0)
	return dst[:len(dst)-1]
}

// GenerationPrefix is AppendGeneration to nothing.
func GenerationPrefix(shard sharding.ShardID, generation uint32) []byte {
	return AppendGeneration(nil, shard, generation)
}

// MissingMark is the damage of a generation that has keys and should have a
// mark.
func MissingMark(shard sharding.ShardID) error {
	return &DamageError{Where: fmt.Sprintf("shard %d", shard), What: "it has keys and no applied mark", Action: actionRebuild}
}

// ScanKeys calls fn for up to limit keys with the prefix that are not before
// from (nil: all), in order, and says whether there are more. It reads no
// value. The key is valid during the call; fn must not panic.
func (v *View) ScanKeys(prefix, from []byte, limit int, fn func(key []byte)) (more bool, err error) {
	err = v.scan(prefix, from, func(item *badger.Item) error {
		if limit == 0 {
			more = true
			return ErrStop
		}
		limit--
		fn(item.Key())
		return nil
	})
	if err == ErrStop {
		err = nil
	}
	return more, err
}

// Cursor walks the pairs of a view in the order of their keys, one at a call.
type Cursor struct {
	view   *View
	prefix []byte
	it     *badger.Iterator
	value  []byte
}

// Cursor returns a cursor before the first key with the prefix. It must be
// closed before the view is.
func (v *View) Cursor(prefix []byte) *Cursor {
	return &Cursor{view: v, prefix: prefix, it: v.txn.NewIterator(badger.IteratorOptions{Prefix: prefix})}
}

// Next moves to the next pair and returns it, checked; a nil key is the end.
// Both slices are valid until the next call.
func (c *Cursor) Next() (key, body []byte, err error) {
	defer c.view.recovered(c.prefix, &err)
	defer faulting()()
	if c.value == nil {
		c.value = []byte{}
		c.it.Seek(c.prefix)
	} else {
		c.it.Next()
	}
	if !c.it.Valid() {
		return nil, nil, nil
	}
	item := c.it.Item()
	key = item.Key()
	if c.value, err = item.ValueCopy(c.value); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", DescribeKey(key), err)
	}
	if c.value == nil {
		c.value = []byte{}
	}
	body, err = openValue(key, c.value)
	return key, body, err
}

// Close releases the cursor.
func (c *Cursor) Close() { c.it.Close() }
