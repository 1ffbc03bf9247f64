package eventlog

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
)

// auditRows is the number of rows between two pauses of an Audit.
const auditRows = 1024

// audit checks all rows against their expected checksums. Audit calls rest
// after every auditRows rows; if rest returns an error, the audit ends. If rows
// are missing or wrong, the shard stops on this node and the error wraps
// journal.ErrDamaged.
func (e *PinnedState) audit(ctx context.Context, rest func(context.Context) error) error {
	var w store.RowHasher
	var found store.Sums
	read, rested := 0, error(nil)
	for _, class := range append([]store.Class{store.ClassDue}, rows.Classes...) {
		err := e.rows.Each(e.view, class, func(k store.Key, body []byte) error {
			if read++; read%auditRows == 0 {
				if rested = rest(ctx); rested != nil {
					return rested
				}
			}
			return w.AddTo(&found, k, body)
		})
		if rested != nil {
			return rested
		}
		if err != nil {
			return fmt.Errorf("audit shard %d: %w", e.header.Shard, e.rows.NoteDamage(err))
		}
	}
	if what := found.Differ(&e.sums); what != "" {
		return e.rows.ReportDamage(&store.DamageError{
			Where: fmt.Sprintf("shard %d", e.header.Shard), What: "rows are missing or differ from the written ones: " + what, Action: rows.ActionReplace,
		})
	}
	return nil
}
