package abitest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
)

// members are member names that commands often have; guessed payloads use them.
var members = []string{
	"amount", "n", "id", "name", "value", "count", "quantity", "price", "key", "item", "text", "title", "to", "from", "delta", "data",
}

// payload chooses a payload. If the command has samples, it returns one of
// them. If the caller has given no samples at all, it draws a payload from the
// schema. Otherwise it returns any payload that the encoding allows.
func (t *typeSuite) payload(name string, random *rand.Rand) []byte {
	if samples := t.options.Samples[t.def.Name][name]; len(samples) > 0 && random.IntN(8) > 0 {
		return samples[random.IntN(len(samples))]
	}
	if t.def.Encoding == manifest.Bytes {
		return guessBytes(random)
	}
	if s := t.forms[name]; s != nil && t.options.Samples == nil && random.IntN(8) > 0 {
		if sample, ok := s.Sample(random); ok {
			return sample
		}
	}
	return guessJSON(random)
}

// compileForms compiles the schemas that payloads are drawn from. It ignores
// schemas that do not compile, because this suite does not test schemas.
func (t *typeSuite) compileForms() {
	t.forms = map[string]*schema.Schema{}
	for _, list := range [][]manifest.Named{t.def.Queries, t.def.Commands} {
		for _, n := range list {
			if n.Schema == nil {
				continue
			}
			if s, err := schema.Inspect(n.Schema, t.report.Manifest.Defs); err == nil {
				t.forms[n.Name] = s
			}
		}
	}
}

func guessBytes(random *rand.Rand) []byte {
	switch random.IntN(4) {
	case 0:
		return nil
	case 1:
		return binary.LittleEndian.AppendUint64(nil, uint64(random.IntN(100)))
	}
	data := make([]byte, random.IntN(64))
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

func guessJSON(random *rand.Rand) []byte {
	switch random.IntN(12) {
	case 0:
		return nil
	case 1:
		return []byte(`{}`)
	case 2:
		return []byte(value(random, 2))
	}
	if random.IntN(2) == 0 { // all names at once, so that any required member is present
		var text strings.Builder
		for i, name := range members {
			if i > 0 {
				text.WriteByte(',')
			}
			fmt.Fprintf(&text, `"%s":%d`, name, 1+random.IntN(9))
		}
		return []byte("{" + text.String() + "}")
	}
	return []byte(object(random, 2))
}

func object(random *rand.Rand, depth int) string {
	var text []string
	for range random.IntN(4) {
		text = append(text, fmt.Sprintf(`"%s":%s`, members[random.IntN(len(members))], value(random, depth-1)))
	}
	return "{" + strings.Join(text, ",") + "}"
}

// value returns arbitrary JSON: guests must reject what they cannot use, and
// must not trap.
func value(random *rand.Rand, depth int) string {
	kind := random.IntN(9)
	if depth <= 0 {
		kind = random.IntN(7)
	}
	switch kind {
	case 0:
		return "null"
	case 1:
		return "true"
	case 2:
		return `"text \"é\" \ud83d\ude00"`
	case 3:
		return fmt.Sprint(random.Int64() - random.Int64())
	case 4:
		return fmt.Sprint(random.Float64())
	case 5, 6:
		return fmt.Sprint(random.IntN(20) - 5)
	case 7:
		return "[" + value(random, depth-1) + "," + value(random, depth-1) + "]"
	}
	return object(random, depth)
}
