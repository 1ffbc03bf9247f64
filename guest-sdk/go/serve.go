package hostd

// served is the module the Wasm exports answer for. A Wasm instance is one
// module, and its exports are functions without a receiver.
var served *Guest

// Serve makes the given types the module's, from the initialisation of a
// package variable:
//
//	var _ = hostd.Serve("counter", "1.0.0", Counter())
//
// It panics when called twice, and where NewGuest would.
func Serve(name, version string, types ...Registration) *Guest {
	if served != nil {
		panic("hostd: Serve is called twice")
	}
	served = NewGuest(name, version, types...)
	attach(served)
	return served
}
