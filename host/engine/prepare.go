package engine

import (
	"encoding/binary"
)

// prepare turns an admitted module into the module that is compiled. It is
// the one place where a module is rewritten: fuel and stack are metered, the
// node's bounds are written into a memory or table that declares none, data
// segments are joined, and every custom section but the functions' names is
// left out.
//
// The result is a function of the module and the limits alone, and what it
// computes is what the module computes: it is the key of the compilation
// cache.
func prepare(m *parsedModule) []byte {
	r := newRewriter(m)
	types, bodies := r.functions()
	var declared []byte
	for _, t := range types {
		declared = binary.AppendUvarint(declared, uint64(t))
	}
	sections := map[byte][]byte{
		sectionImport:   r.importSection(),
		sectionFunction: r.extend(sectionFunction, len(types), declared),
		sectionMemory:   appendResizable([]byte{1}, *m.memory),
		sectionGlobal:   r.globalSection(),
		sectionExport:   r.exportSection(),
		sectionCode:     r.codeSection(bodies),
	}
	sections[sectionType] = r.extend(sectionType, len(r.added), r.types)
	if len(m.tables) > 0 {
		sections[sectionTable] = m.tableSection()
	}
	for id, payload := range map[byte]func() []byte{
		sectionElement:   r.elementSection,
		sectionDataCount: func() []byte { return m.payload(sectionDataCount) },
		sectionData:      func() []byte { return m.mergedData(m.payload(sectionData)) },
	} {
		if m.payload(id) != nil {
			sections[id] = payload()
		}
	}
	out := make([]byte, 0, len(m.wasm)+len(m.wasm)/4)
	out = append(out, wasmMagic...)
	out = append(out, wasmVersion...)
	for _, id := range [...]byte{sectionType, sectionImport, sectionFunction, sectionTable, sectionMemory, sectionGlobal,
		sectionExport, sectionElement, sectionDataCount, sectionCode, sectionData} {
		if payload, there := sections[id]; there {
			out = appendSection(out, id, payload)
		}
	}
	if names := r.functionNames(); len(names) > 0 {
		payload := append([]byte{byte(len(customNames))}, customNames...)
		payload = append(payload, functionNamesPart)
		payload = binary.AppendUvarint(payload, uint64(len(names)))
		out = appendSection(out, sectionCustom, append(payload, names...))
	}
	return out
}

// payload is the payload of a section as uploaded, nil without one.
func (m *parsedModule) payload(id byte) []byte {
	for _, s := range m.sections {
		if s.id == id {
			return m.wasm[s.payload.start:s.payload.end]
		}
	}
	return nil
}

func (m *parsedModule) tableSection() []byte {
	payload := binary.AppendUvarint(nil, uint64(len(m.tables)))
	for _, t := range m.tables {
		payload = appendResizable(append(payload, t.element), t.resizable)
	}
	return payload
}

// appendResizable appends bounds with a maximum.
func appendResizable(dst []byte, r resizable) []byte {
	dst = append(dst, 1)
	dst = binary.AppendUvarint(dst, uint64(r.min))
	return binary.AppendUvarint(dst, uint64(r.max))
}

func appendSection(dst []byte, id byte, payload []byte) []byte {
	dst = append(dst, id)
	dst = binary.AppendUvarint(dst, uint64(len(payload)))
	return append(dst, payload...)
}
