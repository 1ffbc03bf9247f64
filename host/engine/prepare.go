package engine

import (
	"encoding/binary"
)

// prepare turns an admitted module into the module that is compiled. It is
// the one place where a module is rewritten: here the node's bounds are
// written into a memory or table that declares none, data segments are joined,
// every custom section but the functions' names is left out, and here metering
// belongs.
//
// The result is a function of the module and the limits alone: it is the key
// of the compilation cache.
func prepare(m *parsedModule) []byte {
	out := make([]byte, 0, len(m.wasm)+64)
	out = append(out, wasmMagic...)
	out = append(out, wasmVersion...)
	for _, s := range m.sections {
		switch s.id {
		case sectionTable:
			out = appendSection(out, s.id, m.tableSection())
		case sectionMemory:
			out = appendSection(out, s.id, appendResizable([]byte{1}, *m.memory))
		case sectionData:
			out = appendSection(out, s.id, m.mergedData(m.wasm[s.payload.start:s.payload.end]))
		default:
			out = appendSection(out, s.id, m.wasm[s.payload.start:s.payload.end])
		}
	}
	if names := m.wasm[m.names.start:m.names.end]; len(names) > 0 {
		payload := append([]byte{byte(len(customNames))}, customNames...)
		payload = append(payload, functionNamesPart)
		payload = binary.AppendUvarint(payload, uint64(len(names)))
		out = appendSection(out, sectionCustom, append(payload, names...))
	}
	return out
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
