package store

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/dgraph-io/badger/v4"
)

// Badger reads tables through memory mappings. A page that the disk cannot read
// causes a fault, which ends the process without naming the file, unless the
// goroutine has asked for a panic instead. The goroutines that compact tables
// belong to Badger, so a fault in such a goroutine does end the process. The
// next start reads the files and names the damaged file.

// panicOnFault turns faults of the goroutine into panics until the returned
// function is called.
//
//	defer panicOnFault()()
func panicOnFault() (restore func()) {
	before := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(before) }
}

// damageFromPanic converts a panic of Badger, over a page that cannot be read or over
// invalid bytes, into a DamageError. where names the file or rows that were being read.
func damageFromPanic(panicked any, where string) *DamageError {
	d := &DamageError{Where: where, What: "a block of a table is invalid", Action: actionRebuild}
	var err runtime.Error
	if e, ok := panicked.(runtime.Error); ok {
		err = e
	}
	if fault, ok := err.(interface{ Addr() uintptr }); ok {
		d.What = "a page of a table cannot be read"
		if name := mappedTable(fault.Addr()); name != "" {
			d.What = fmt.Sprintf("a page cannot be read while reading the %s", where)
			d.Where = name
		}
	}
	return d
}

// tables lists the tables. Badger reads their indexes under a lock that stays
// locked after a fault, so an unreadable index is fatal.
func (s *Store) tables() []badger.TableInfo {
	defer panicOnFault()()
	defer func() {
		if r := recover(); r != nil {
			err := damageFromPanic(r, "list of tables")
			s.opts.Fatal(err)
			panic(err)
		}
	}()
	return s.db.Tables()
}
