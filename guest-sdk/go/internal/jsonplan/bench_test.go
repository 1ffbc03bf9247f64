package jsonplan

import (
	"encoding/json"
	"testing"
	"unsafe"
)

type amount struct {
	Amount int64 `json:"amount"`
}

type order struct {
	ID    string   `json:"id"`
	Total int64    `json:"total"`
	Paid  bool     `json:"paid"`
	Items []amount `json:"items"`
}

const orderText = `{"id":"o-1234567890","total":41,"paid":true,"items":[{"amount":3},{"amount":38}]}`

func BenchmarkDecodeAmount(b *testing.B) {
	plan, text := planOf[amount](b), []byte(`{"amount":3}`)
	var value amount
	b.ReportAllocs()
	for b.Loop() {
		value = amount{}
		if err := plan.Decode(text, unsafe.Pointer(&value)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendAmount(b *testing.B) {
	plan, value := planOf[amount](b), amount{3}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = plan.Append(dst[:0], unsafe.Pointer(&value))
	}
}

func BenchmarkDecodeOrder(b *testing.B) {
	plan, text := planOf[order](b), []byte(orderText)
	b.ReportAllocs()
	for b.Loop() {
		var value order
		if err := plan.Decode(text, unsafe.Pointer(&value)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeOrderStandard(b *testing.B) {
	text := []byte(orderText)
	b.ReportAllocs()
	for b.Loop() {
		var value order
		if err := json.Unmarshal(text, &value); err != nil {
			b.Fatal(err)
		}
	}
}
