package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Account is what the memory of nodes consists of at a moment, in bytes.
type Account struct {
	When     string `json:"when"`
	Entities uint64 `json:"entities"` // in memory
	Parts    []Part `json:"parts"`
	// Resident is all that the processes have in memory, Anonymous what no file
	// is behind of it.
	Resident  uint64 `json:"residentBytes"`
	Anonymous uint64 `json:"anonymousBytes"`
	// EntitiesPerGiB are those in a GiB of Resident.
	EntitiesPerGiB float64 `json:"entitiesPerGiB"`
}

// Part is one of the parts of Resident. The one without a name of its own may
// be negative: what another part counts need not all be in memory.
type Part struct {
	Name  string  `json:"name"`
	Bytes float64 `json:"bytes"`
}

// NewAccount tells the parts of what processes have taken together, by what
// their nodes tell of themselves.
func NewAccount(when string, u Usage, told Metrics) Account {
	a := Account{When: when, Entities: uint64(told["hostd_type_entities_resident"]), Resident: u.Anonymous + u.Files, Anonymous: u.Anonymous}
	a.Parts = []Part{
		{"Go's heap, in use", told["go_memstats_heap_inuse_bytes"]},
		{"Go's heap, free and not given back", told["go_memstats_heap_idle_bytes"] - told["go_memstats_heap_released_bytes"]},
		{"Go's stacks and tables", told["go_memstats_sys_bytes"] - told["go_memstats_heap_sys_bytes"]},
		{"records of folded entities", told["hostd_folded_bytes"]},
		{"memory of guests", told["hostd_engine_memory_bytes"]},
	}
	rest := float64(u.Anonymous)
	for _, p := range a.Parts {
		rest -= p.Bytes
	}
	a.Parts = append(a.Parts, Part{"compiled guests and the rest", rest}, Part{"files: tables, logs of memtables, the program", float64(u.Files)})
	if a.Resident > 0 {
		a.EntitiesPerGiB = float64(a.Entities) / float64(a.Resident) * (1 << 30)
	}
	return a
}

// writeAccounts prints accounts of the same parts, a column each.
func (r *Report) writeAccounts(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	row := func(name string, cell func(Account) string) {
		fmt.Fprintf(tw, "%s\t", name)
		for _, a := range r.Accounts {
			fmt.Fprintf(tw, "%s\t", cell(a))
		}
		fmt.Fprintln(tw)
	}
	row("memory, MiB", func(a Account) string { return a.When })
	mib := func(bytes float64) string { return fmt.Sprintf("%.1f", bytes/(1<<20)) }
	for i, p := range r.Accounts[0].Parts {
		row(p.Name, func(a Account) string { return mib(a.Parts[i].Bytes) })
	}
	row("all of it", func(a Account) string { return mib(float64(a.Resident)) })
	row("entities in memory", func(a Account) string { return fmt.Sprint(a.Entities) })
	row("entities in a GiB", func(a Account) string { return fmt.Sprintf("%.0f", a.EntitiesPerGiB) })
	tw.Flush()
}
