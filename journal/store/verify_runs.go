package store

import "strings"

// runCounts counts the open runs of a shard.
type runCounts struct {
	open   uint64 // number of open runs according to the entity rows
	listed uint64 // number of open runs in the index
	stated uint64 // number of open runs according to the counters of types
}

// openRun checks a row of the index of open runs: the entity row must show that
// the entity is an open run.
func (v *verifier) openRun(k Key, body []byte) error {
	n, err := DecodeCount(body)
	if err != nil {
		return err
	}
	c := &v.generation.runs
	if typ, rest, _ := strings.Cut(string(k.Suffix), "\x00"); rest == "" && typ != "" {
		c.stated += n
		return nil
	}
	if _, _, err := SplitEntity(string(k.Suffix)); err != nil {
		return err
	}
	c.listed++
	var h Head
	_, err = v.view.Get(append(AppendPrefix(nil, k.Shard, k.Generation, ClassEntity), k.Suffix...), func(body []byte) (err error) {
		h, err = DecodeHead(body)
		return err
	})
	if err == nil && (!h.Run.IsOpen() || h.Deleted || h.Run.Began() != int64(n)) {
		v.problem(DescribeKey(AppendPrefix(nil, k.Shard, k.Generation, ClassRun)), "its entity is not an open run that began then")
	}
	return nil // an unreadable entity row is reported with its own pair
}

// reportMismatches reports where the entity rows and the index disagree.
func (c *runCounts) reportMismatches(problem func(format string, args ...any)) {
	if c.open != c.listed || c.open != c.stated {
		problem("%d open runs; their index lists %d and counts %d", c.open, c.listed, c.stated)
	}
}
