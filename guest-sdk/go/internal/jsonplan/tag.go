package jsonplan

import (
	"cmp"
	"strconv"
	"strings"
)

// tag is a field's parsed hostd tag, which describes its schema. Its options
// are separated by commas; desc is the last option and contains the rest of the
// text.
type tag struct {
	required    bool
	min, max    string // values of min=N and max=N
	enum        string // values separated by |
	description string
}

func parseTag(text string) (t tag, fault string) {
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "desc="); ok {
			t.description = rest
			break
		}
		var option string
		option, text, _ = strings.Cut(text, ",")
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "required":
			t.required = true
		case "enum":
			t.enum = value
		case "min", "max":
			if _, err := strconv.ParseFloat(value, 64); err != nil {
				return t, "hostd option " + option + " has no number"
			}
			if name == "min" {
				t.min = value
			} else {
				t.max = value
			}
		default:
			return t, "hostd option " + name + " is not known; there are required, enum, min, max and desc"
		}
	}
	return t, ""
}

// append appends the keywords of the tag for a type, and the bounds of integers
// of less than 64 bits.
func (t *tag) append(dst []byte, n *node, null bool) []byte {
	start := len(dst)
	least, most := "minimum", "maximum"
	from, until := t.min, t.max
	switch n.op {
	case opInt8, opInt16, opInt32:
		end := int64(1) << (8*n.size - 1)
		from, until = cmp.Or(from, strconv.FormatInt(-end, 10)), cmp.Or(until, strconv.FormatInt(end-1, 10))
	case opUint8, opUint16, opUint32:
		from, until = cmp.Or(from, "0"), cmp.Or(until, strconv.FormatInt(int64(1)<<(8*n.size)-1, 10))
	case opString, opTextMethods, opBytes:
		least, most = "minLength", "maxLength"
	case opSlice, opArray:
		least, most = "minItems", "maxItems"
	case opMap:
		least, most = "minProperties", "maxProperties"
	}
	for _, k := range [...]struct{ name, value string }{{least, from}, {most, until}} {
		if k.value != "" {
			dst = append(append(append(append(dst, `,"`...), k.name...), `":`...), k.value...)
		}
	}
	if t.enum != "" {
		dst = append(dst, `,"enum":[`...)
		for i, value := range strings.Split(t.enum, "|") {
			if i > 0 {
				dst = append(dst, ',')
			}
			if n.op == opString || n.op == opTextMethods {
				dst = appendString(dst, value)
			} else {
				dst = append(dst, value...)
			}
		}
		if null {
			dst = append(dst, ",null"...)
		}
		dst = append(dst, ']')
	}
	if t.description != "" {
		dst = appendString(append(dst, `,"description":`...), t.description)
	}
	if start > 0 && dst[start-1] == '{' && len(dst) > start {
		dst = append(dst[:start], dst[start+1:]...)
	}
	return dst
}
