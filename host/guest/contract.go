package guest

import (
	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
)

// Value types in signatures.
const (
	i32 = wasm.I32
	i64 = wasm.I64
)

// contract lists the functions of the guest contract, in the order in which
// missing ones are reported.
var contract = [...]wasm.ExportedFunction{
	{Name: abi.ExportABI, Signature: wasm.Signature{Results: i32}},
	{Name: abi.ExportDescribe, Signature: wasm.Signature{Results: i64}},
	{Name: abi.ExportBuffer, Signature: wasm.Signature{Params: i32, Results: i32}},
	{Name: abi.ExportLoad, Signature: wasm.Signature{Params: i32 + i64 + i32, Results: i32}},
	{Name: abi.ExportApply, Signature: wasm.Signature{Params: i64 + i32, Results: i32}},
	{Name: abi.ExportHandle, Signature: wasm.Signature{Params: i64 + i32, Results: i64}},
	{Name: abi.ExportQuery, Signature: wasm.Signature{Params: i64 + i32, Results: i64}},
	{Name: abi.ExportSnapshot, Signature: wasm.Signature{Params: i64, Results: i64}},
	{Name: abi.ExportDrop, Signature: wasm.Signature{Params: i64}},
}

// optional lists the functions that a module may export. In guestFunction,
// they follow the functions in contract.
var optional = [...]wasm.ExportedFunction{
	{Name: abi.ExportUpcast, Signature: wasm.Signature{Params: i32 + i32, Results: i64}},
}
