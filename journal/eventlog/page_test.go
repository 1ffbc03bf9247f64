package eventlog_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal/eventlog"
)

// The pages of a listing, however much each may examine, add up to all existing
// or all deleted entities.
func TestPagesAgreeWithModel(t *testing.T) {
	for seed := range uint64(*seeds) {
		src := newSource(seed, 1, 40)
		st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
		m := openMachine(t, st, 0, eventlog.Options{MaxEntityRows: 1 + int(seed*7%50)})
		deletions := 0
		for range 600 {
			id, c, want := src.next()
			checkVerdict(t, apply1(m, id, c), want)
			if src.rng.IntN(9) == 0 {
				flush(t, m, st)
			}
			if src.rng.IntN(20) > 0 {
				continue
			}
			sh := src.model.shard(id)
			q := eventlog.PageQuery{Type: "cart", IDPrefix: []string{"", "e", "e 1"}[src.rng.IntN(3)],
				Limit: 1 + src.rng.IntN(9), Looks: 1 + src.rng.IntN(9), Deleted: src.rng.IntN(2) == 0}
			var all, got []string
			for e, ent := range sh.entities {
				if e.Type == "cart" && ent.deleted == q.Deleted && strings.HasPrefix(e.ID, q.IDPrefix) {
					all = append(all, fmt.Sprintf("%s %d", e.ID, ent.seq))
				}
			}
			slices.Sort(all)
			for {
				page, err := m.Page(id, q)
				if err != nil {
					t.Fatal(err)
				}
				if len(page.Entities) > min(q.Limit, q.Looks) || page.Next != "" && page.Next <= q.After {
					t.Fatalf("%+v gives %d entities and goes on after %q", q, len(page.Entities), page.Next)
				}
				for _, e := range page.Entities {
					got = append(got, fmt.Sprintf("%s %d", e.Entity.ID, e.Sequence))
				}
				if q.After = page.Next; q.After == "" {
					break
				}
			}
			if !slices.Equal(got, all) {
				t.Fatalf("%+v\n got %q\nwant %q", q, got, all)
			}
			if q.Deleted {
				deletions += len(got)
			}
		}
		if deletions == 0 {
			t.Error("nothing was deleted")
		}
	}
}
