// Package debugging has the commands for those who write entities: they follow
// the lines of guests, take an entity's history home, and go through it there.
package debugging
