package wasm

import (
	"encoding/binary"
)

// Metered is an admitted module with its metering plan. It is safe for
// concurrent use.
type Metered struct {
	*Module
	plans []bodyPlan // plans by defined function
}

// AdmitMetered admits a module, as Admit does, and plans its metering. The
// module keeps source. The error is an *AdmissionError.
func AdmitMetered(source []byte, rules Rules) (*Metered, error) {
	planner := &modulePlanner{}
	parsed, err := Admit(source, rules, planner)
	if err != nil {
		return nil, err
	}
	m := &Metered{parsed, planner.plans}
	m.shareCosts()
	return m, nil
}

// Shape describes how a function is metered.
type Shape struct {
	FrameBytes int64 // counted stack bytes of a call
	ByCallers  bool  // the callers pay for the function
	Leaf       bool  // the function makes only direct calls, to functions too small to be counted
	Region     bool  // the frame is counted for a part of the function
	Wrapped    bool  // the frame is counted for the whole function, in a block
	Unrolled   int   // number of unrolled loops
	Late       int   // number of loops charged at the branches back
}

// Shape returns the shape of a defined function, counted without imports.
func (m *Metered) Shape(function int) Shape {
	plan := &m.plans[function]
	s := Shape{
		FrameBytes: plan.frameBytes(len(m.Types[m.Functions[function]].Params)),
		ByCallers:  plan.byCallers,
		Leaf:       !plan.deep && len(plan.direct) > 0,
		Region:     plan.deep && plan.region.exists() && !plan.hasPending(),
		Wrapped:    plan.deep && !plan.region.exists(),
	}
	for _, p := range plan.points {
		if p.copies > 0 {
			s.Unrolled++
		}
		if p.late {
			s.Late++
		}
	}
	return s
}

// Prepare returns the module that is compiled. All rewriting happens here: it
// adds the metering of fuel and stack, adds the node's limits to a memory or
// table that declares no maximum, joins data segments, and drops every custom
// section except function names.
//
// The result depends on the module and the limits alone and computes the same
// as the module. The key of the compilation cache is derived from it.
func (m *Metered) Prepare() []byte {
	r := newRewriter(m)
	types, bodies := r.functions()
	var declared []byte
	for _, t := range types {
		declared = binary.AppendUvarint(declared, uint64(t))
	}
	sections := map[byte][]byte{
		SectionImport:   r.importSection(),
		SectionFunction: r.extend(SectionFunction, len(types), declared),
		SectionMemory:   appendResizable([]byte{1}, *m.Memory),
		SectionGlobal:   r.globalSection(),
		SectionExport:   r.exportSection(),
		SectionCode:     r.codeSection(bodies),
	}
	sections[SectionType] = r.extend(SectionType, len(r.added), r.types)
	if len(m.Tables) > 0 {
		sections[SectionTable] = m.tableSection()
	}
	for id, payload := range map[byte]func() []byte{
		SectionElement:   r.elementSection,
		SectionDataCount: func() []byte { return m.Payload(SectionDataCount) },
		SectionData:      func() []byte { return m.mergedData(m.Payload(SectionData)) },
	} {
		if m.Payload(id) != nil {
			sections[id] = payload()
		}
	}
	out := make([]byte, 0, len(m.Source)+len(m.Source)/4)
	out = append(out, Magic...)
	out = append(out, Version...)
	for _, id := range [...]byte{SectionType, SectionImport, SectionFunction, SectionTable, SectionMemory, SectionGlobal,
		SectionExport, SectionElement, SectionDataCount, SectionCode, SectionData} {
		if payload, there := sections[id]; there {
			out = appendSection(out, id, payload)
		}
	}
	if names := r.functionNames(); len(names) > 0 {
		payload := append([]byte{byte(len(CustomNames))}, CustomNames...)
		payload = append(payload, FunctionNamesPart)
		payload = binary.AppendUvarint(payload, uint64(len(names)))
		out = appendSection(out, SectionCustom, append(payload, names...))
	}
	return out
}

func (m *Metered) tableSection() []byte {
	payload := binary.AppendUvarint(nil, uint64(len(m.Tables)))
	for _, t := range m.Tables {
		payload = appendResizable(append(payload, t.Element), t.Resizable)
	}
	return payload
}

// appendResizable appends bounds with a maximum.
func appendResizable(dst []byte, r Resizable) []byte {
	dst = append(dst, 1)
	dst = binary.AppendUvarint(dst, uint64(r.Min))
	return binary.AppendUvarint(dst, uint64(r.Max))
}

func appendSection(dst []byte, id byte, payload []byte) []byte {
	dst = append(dst, id)
	dst = binary.AppendUvarint(dst, uint64(len(payload)))
	return append(dst, payload...)
}
