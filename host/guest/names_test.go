package guest

import (
	"github.com/hostd/hostd/host/guest/wasm"
)

// Short names for constants of the binary format.
const (
	blockVoid        = wasm.BlockVoid
	kindFunction     = wasm.KindFunction
	kindGlobal       = wasm.KindGlobal
	kindMemory       = wasm.KindMemory
	kindTable        = wasm.KindTable
	miscDataDrop     = wasm.MiscDataDrop
	miscMemoryCopy   = wasm.MiscMemoryCopy
	miscMemoryFill   = wasm.MiscMemoryFill
	miscMemoryInit   = wasm.MiscMemoryInit
	miscTableCopy    = wasm.MiscTableCopy
	miscTableFill    = wasm.MiscTableFill
	miscTableGrow    = wasm.MiscTableGrow
	miscTableInit    = wasm.MiscTableInit
	opBlock          = wasm.OpBlock
	opBr             = wasm.OpBr
	opBrIf           = wasm.OpBrIf
	opBrTable        = wasm.OpBrTable
	opCall           = wasm.OpCall
	opCallIndirect   = wasm.OpCallIndirect
	opDrop           = wasm.OpDrop
	opElse           = wasm.OpElse
	opEnd            = wasm.OpEnd
	opF32Const       = wasm.OpF32Const
	opF64Const       = wasm.OpF64Const
	opGlobalGet      = wasm.OpGlobalGet
	opGlobalSet      = wasm.OpGlobalSet
	opI32Add         = wasm.OpI32Add
	opI32Const       = wasm.OpI32Const
	opI32Eqz         = wasm.OpI32Eqz
	opI32Load        = wasm.OpI32Load
	opI32LtU         = wasm.OpI32LtU
	opI32Or          = wasm.OpI32Or
	opI32ShrU        = wasm.OpI32ShrU
	opI32Sub         = wasm.OpI32Sub
	opI64Add         = wasm.OpI64Add
	opI64Const       = wasm.OpI64Const
	opI64ExtendU     = wasm.OpI64ExtendU
	opI64Mul         = wasm.OpI64Mul
	opI64Sub         = wasm.OpI64Sub
	opIf             = wasm.OpIf
	opLocalGet       = wasm.OpLocalGet
	opLocalSet       = wasm.OpLocalSet
	opLocalTee       = wasm.OpLocalTee
	opLoop           = wasm.OpLoop
	opMemoryGrow     = wasm.OpMemoryGrow
	opMemorySize     = wasm.OpMemorySize
	opMisc           = wasm.OpMisc
	opNop            = wasm.OpNop
	opRefFunc        = wasm.OpRefFunc
	opRefNull        = wasm.OpRefNull
	opReturn         = wasm.OpReturn
	opTableSet       = wasm.OpTableSet
	opUnreachable    = wasm.OpUnreachable
	opV128Const      = wasm.OpV128Const
	opVector         = wasm.OpVector
	sectionCode      = wasm.SectionCode
	sectionCustom    = wasm.SectionCustom
	sectionData      = wasm.SectionData
	sectionDataCount = wasm.SectionDataCount
	sectionElement   = wasm.SectionElement
	sectionExport    = wasm.SectionExport
	sectionFunction  = wasm.SectionFunction
	sectionGlobal    = wasm.SectionGlobal
	sectionImport    = wasm.SectionImport
	sectionMemory    = wasm.SectionMemory
	sectionStart     = wasm.SectionStart
	sectionTable     = wasm.SectionTable
	sectionTag       = wasm.SectionTag
	sectionType      = wasm.SectionType
	typeF32          = wasm.TypeF32
	typeF64          = wasm.TypeF64
	typeFuncref      = wasm.TypeFuncref
	typeFunction     = wasm.TypeFunction
	typeI32          = wasm.TypeI32
	typeI64          = wasm.TypeI64
	typeV128         = wasm.TypeV128
)

const pageBytes = wasm.PageBytes

type (
	signature = wasm.Signature
	cursor    = wasm.Cursor
)

func sig(params, results string) signature { return signature{Params: params, Results: results} }

// Instructions for floats and division, which random programs use.
const (
	opF64Sqrt = 0x9f
	opI32DivS = 0x6d
)

// The expected constants of metering, and of the charge of an instance.
const (
	bulkChunk      = 256 << 10 // bytes that are copied at once
	weightHost     = 64
	weightCall     = 4
	weightAccess   = 4
	longStretch    = 16_000 // units that are charged at once before a check
	workAccess     = 256    // bytes of the frame for a memory access on credit
	mostCredit     = 768    // maximum bytes of work on credit
	stackBytes     = wasm.StackBytes
	elementBytes   = 8
	referenceBytes = 56
	segmentBytes   = 24
	tableBytes     = 128
)
