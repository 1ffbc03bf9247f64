package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Account is a breakdown of the memory of nodes at a moment, in bytes.
type Account struct {
	When     string `json:"when"`
	Entities uint64 `json:"entities"` // number of entities in memory
	Parts    []Part `json:"parts"`
	// Resident is the resident memory of the processes, and Anonymous the part
	// of it that is not backed by a file.
	Resident  uint64 `json:"residentBytes"`
	Anonymous uint64 `json:"anonymousBytes"`
	// EntitiesPerGiB is the number of entities per GiB of Resident.
	EntitiesPerGiB float64 `json:"entitiesPerGiB"`
}

// Part is a part of Resident. The remainder, which has no name, may be negative
// because the bytes that another part counts need not all be resident.
type Part struct {
	Name  string  `json:"name"`
	Bytes float64 `json:"bytes"`
}

// NewAccount splits the total usage of the processes into parts, using the
// metrics that their nodes report.
func NewAccount(when string, u Usage, told Metrics) Account {
	a := Account{When: when, Entities: uint64(told["hostd_type_entities_resident"]), Resident: u.Anonymous + u.Files, Anonymous: u.Anonymous}
	a.Parts = []Part{
		{"Go's heap, in use", told["go_memstats_heap_inuse_bytes"]},
		{"Go's heap, free but not returned to the system", told["go_memstats_heap_idle_bytes"] - told["go_memstats_heap_released_bytes"]},
		{"Go's stacks and tables", told["go_memstats_sys_bytes"] - told["go_memstats_heap_sys_bytes"]},
		{"records of hibernated entities", told["hostd_hibernated_bytes"]},
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

// writeAccounts prints accounts with the same parts, one per column.
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
