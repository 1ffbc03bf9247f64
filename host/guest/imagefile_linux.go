package guest

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// imageFile is a sealed, immutable file in memory (memfd).
type imageFile struct {
	descriptor int
	bytes      int
}

// newImageFile creates an imageFile with the given content, which must consist
// of whole pages. Pages of zeros use no memory until they are read.
func newImageFile(content []byte) (imageFile, error) {
	const name, flags = "hostd-image", unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	descriptor, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // older than Linux 6.3
		descriptor, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return imageFile{}, fmt.Errorf("memory image of a guest: %w", err)
	}
	f := imageFile{descriptor, len(content)}
	if err := f.fill(content); err != nil {
		return imageFile{}, fmt.Errorf("memory image of a guest: %w", errors.Join(err, f.close()))
	}
	return f, nil
}

func (f imageFile) fill(content []byte) error {
	if err := unix.Ftruncate(f.descriptor, int64(len(content))); err != nil {
		return err
	}
	zeros := make([]byte, machinePage)
	for at := 0; at < len(content); at += machinePage {
		page := content[at : at+machinePage]
		if bytes.Equal(page, zeros) {
			continue
		}
		if n, err := unix.Pwrite(f.descriptor, page, int64(at)); err != nil || n < len(page) {
			return errors.Join(err, unix.ENOSPC)
		}
	}
	_, err := unix.FcntlInt(uintptr(f.descriptor), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	return err
}

// mapInto maps the file copy-on-write over the beginning of reserved.
func (f imageFile) mapInto(reserved []byte) error {
	if f.bytes == 0 {
		return nil
	}
	_, err := unix.MmapPtr(f.descriptor, 0, unsafe.Pointer(&reserved[0]), uintptr(f.bytes),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}

// close closes the descriptor. Existing mappings stay valid.
func (f imageFile) close() error { return unix.Close(f.descriptor) }
