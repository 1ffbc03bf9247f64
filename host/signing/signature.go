package signing

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Statement is what a signature signs: the digest of a module's bytes, and the
// module's name and version.
type Statement struct {
	Digest        [sha256.Size]byte
	Name, Version string
}

// domain is the prefix of all signed messages, so that a signature of something
// else is never a valid signature of a module.
const domain = "hostd-module-v1\x00"

// message returns the signed bytes. Texts are preceded by their lengths, so
// that two different statements always have different bytes.
func (s Statement) message() []byte {
	out := append([]byte(domain), s.Digest[:]...)
	for _, text := range []string{s.Name, s.Version} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(text)))
		out = append(out, text...)
	}
	return out
}

// The bytes of a signature: the version, the public key, and the ed25519
// signature.
const (
	signatureVersion = 1
	// SignatureBytes is the length of a signature.
	SignatureBytes = 1 + ed25519.PublicKeySize + ed25519.SignatureSize
)

// Sign signs a statement.
func Sign(s Statement, key ed25519.PrivateKey) []byte {
	out := append([]byte{signatureVersion}, key.Public().(ed25519.PublicKey)...)
	return append(out, ed25519.Sign(key, s.message())...)
}

// split returns the parts of a signature. ok is false if it is not a signature
// of this version.
func split(signature []byte) (key ed25519.PublicKey, signed []byte, ok bool) {
	if len(signature) != SignatureBytes || signature[0] != signatureVersion {
		return nil, nil, false
	}
	return ed25519.PublicKey(signature[1 : 1+ed25519.PublicKeySize]), signature[1+ed25519.PublicKeySize:], true
}

// Text returns a signature as stored in files: base64 and a line break.
func Text(signature []byte) string { return base64.StdEncoding.EncodeToString(signature) + "\n" }

// ParseText parses the result of Text.
func ParseText(text []byte) ([]byte, error) {
	signature, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, errors.New("the signature is not base64")
	}
	if _, _, ok := split(signature); !ok {
		return nil, fmt.Errorf("the signature must be of version %d and have %d bytes", signatureVersion, SignatureBytes)
	}
	return signature, nil
}

// keyBlock is the type of the PEM block of a private key.
const keyBlock = "PRIVATE KEY"

// KeyText returns a private key as stored in files: PKCS #8 in PEM, which other
// tools also use.
func KeyText(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// ParseKey parses the result of KeyText. The error contains nothing of the
// text.
func ParseKey(text []byte) (ed25519.PrivateKey, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != keyBlock || strings.TrimSpace(string(rest)) != "" {
		return nil, errors.New("the file must contain one private key in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the private key must be in PKCS #8")
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("the private key must be an Ed25519 key")
	}
	return key, nil
}
