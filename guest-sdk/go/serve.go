package hostd

// served is the module that the Wasm exports serve. It is a package variable
// because a Wasm instance is one module and its exports are functions without a
// receiver.
var served *Guest

// Serve makes the given types the types of this module. Call it from the
// initialization of a package variable:
//
//	var _ = hostd.Serve("counter", "1.0.0", Counter())
//
// It panics if it is called twice, and in the same cases as NewGuest.
func Serve(name, version string, types ...Registration) *Guest {
	if served != nil {
		panic("hostd: Serve is called twice")
	}
	served = NewGuest(name, version, types...)
	attach(served)
	return served
}
