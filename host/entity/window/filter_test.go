package window

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/journal"
)

// TestFilterContainsEveryAddedID checks that a filter contains every added id, however
// it has grown, and rejects most other ids.
func TestFilterContainsEveryAddedID(t *testing.T) {
	f := newFilter(1)
	id := func(i int) journal.CommandID {
		return journal.CommandID(fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", i))
	}
	const ids = 10_000
	for i := range ids {
		if f.full() {
			f.grow()
		}
		if f.Add(id(i)); i%997 == 0 {
			for j := range i + 1 {
				if !f.Has(id(j)) {
					t.Fatalf("id %d is lost after %d", j, i)
				}
			}
		}
	}
	f = newFilter(ids)
	for i := range ids {
		f.Add(id(i))
	}
	wrong := 0
	for i := ids; i < 2*ids; i++ {
		if f.Has(id(i)) {
			wrong++
		}
	}
	if len(f.bits) > 16<<10 || wrong > ids/30 {
		t.Errorf("%d bytes, %d of %d others may be in it", len(f.bits), wrong, ids)
	}
}
