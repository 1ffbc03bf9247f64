// Package principal says who calls: by what kind of credential, under which
// name, and in which groups. It has the bytes by which nodes, guests and the
// journal are told. It never looks at a credential, decides nothing, and has no
// goroutine.
package principal
