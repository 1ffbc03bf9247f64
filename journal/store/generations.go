package store

import (
	"fmt"
	"math"

	"github.com/dgraph-io/badger/v4"

	"github.com/hostd/hostd/sharding"
)

// Generation describes one generation of a shard in the store.
type Generation struct {
	Shard      sharding.ShardID
	Generation uint32
	// Marked means that the generation has an applied state. A generation
	// without an applied state is being deleted, or is a snapshot that was not
	// completely installed.
	Marked  bool
	Applied Applied
}

// Generations returns every generation of every shard that has a key in the
// view, in order. It costs one or two seeks for each generation.
func (v *View) Generations() (generations []Generation, err error) {
	defer v.recoverDamage([]byte{}, &err)
	defer panicOnFault()()
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

// recordBytes computes Applied.Bytes, which the applied state of an earlier
// release does not have.
func (v *View) recordBytes(shard sharding.ShardID, generation uint32) (sum uint64, err error) {
	err = v.Scan(AppendPrefix(nil, shard, generation, ClassEntity), nil, func(_, body []byte) error {
		h, err := DecodeHead(body)
		sum += h.Bytes
		return err
	})
	return sum, err
}

// AppendGeneration appends the common prefix of all keys of a shard's
// generation.
func AppendGeneration(dst []byte, shard sharding.ShardID, generation uint32) []byte {
	dst = AppendPrefix(dst, shard, generation, 0)
	return dst[:len(dst)-1]
}

// GenerationPrefix returns the common prefix of all keys of a shard's
// generation.
func GenerationPrefix(shard sharding.ShardID, generation uint32) []byte {
	return AppendGeneration(nil, shard, generation)
}

// MissingMark returns the error for a generation that has keys but no applied
// state.
func MissingMark(shard sharding.ShardID) error {
	return &DamageError{Where: fmt.Sprintf("shard %d", shard), What: "it has keys but no applied state", Action: actionRebuild}
}

// ScanKeys calls fn for up to limit keys with the prefix, in order, starting at
// from (nil: at the first), and reports whether there are more. It reads no
// values. The key is valid during the call; fn must not panic.
func (v *View) ScanKeys(prefix, from []byte, limit int, fn func(key []byte)) (more bool, err error) {
	if from == nil {
		from = prefix
	}
	err = v.scan(badger.IteratorOptions{Prefix: prefix}, from, func(item *badger.Item) error {
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

// Cursor iterates over the pairs of a view in key order.
type Cursor struct {
	view   *View
	prefix []byte
	it     *badger.Iterator
	value  []byte
}

// Cursor returns a cursor before the first key with the prefix. It must be
// closed before the view.
func (v *View) Cursor(prefix []byte) *Cursor {
	return &Cursor{view: v, prefix: prefix, it: v.txn.NewIterator(badger.IteratorOptions{Prefix: prefix})}
}

// Next returns the next pair after verifying it, or a nil key at the end. Both
// slices are valid until the next call.
func (c *Cursor) Next() (key, body []byte, err error) {
	defer c.view.recoverDamage(c.prefix, &err)
	defer panicOnFault()()
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
