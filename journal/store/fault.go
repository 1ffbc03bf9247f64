package store

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/dgraph-io/badger/v4"
)

// Badger reads tables through mappings. A page that the disk does not give is a
// fault there, which ends the process and names nothing, unless the goroutine
// asks for a panic in its place. The goroutines that merge tables are Badger's:
// what they meet does end the process, and the next start, which reads the files,
// names the one.

// faulting makes faults of the goroutine panics until what it returns is called.
//
//	defer faulting()()
func faulting() (restore func()) {
	before := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(before) }
}

// broken is the damage that a panic of Badger over bytes tells of: a page that
// cannot be read, or bytes that make no sense. where is what was read.
func broken(panicked any, where string) *DamageError {
	d := &DamageError{Where: where, What: "a table's block is broken", Action: actionRebuild}
	var err runtime.Error
	if e, ok := panicked.(runtime.Error); ok {
		err = e
	}
	if fault, ok := err.(interface{ Addr() uintptr }); ok {
		d.What = "a page of a table cannot be read"
		if name := mappedTable(fault.Addr()); name != "" {
			d.What = fmt.Sprintf("a page of it cannot be read, for the %s", where)
			d.Where = name
		}
	}
	return d
}

// tables lists the tables. That reads their indexes, and Badger holds a lock
// meanwhile, which stays locked: an index that cannot be read is fatal.
func (s *Store) tables() []badger.TableInfo {
	defer faulting()()
	defer func() {
		if r := recover(); r != nil {
			err := broken(r, "list of tables")
			s.opts.Fatal(err)
			panic(err)
		}
	}()
	return s.db.Tables()
}
