package guest

import (
	"sync/atomic"
	"unsafe"
)

// machinePage is no larger than a page of the machine.
const machinePage = 4 << 10

// touch writes to each page of part and changes nothing.
func touch(part []byte) {
	for at := 0; at < len(part); at += machinePage {
		atomic.AddUint32((*uint32)(unsafe.Pointer(&part[at])), 0)
	}
}
