// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"cmp"
	"slices"

	"coelan.io/coelan/internal/attachment"
)

// group is what one ADD made and one DEL removes: its own interface first, and those that
// were made with it.
type group []attachment.Attachment

// group finds what the ADD of a key made; nothing if there is none.
func (s *Server) group(key attachment.Key) group {
	g := slices.DeleteFunc(group(s.opts.Store.Of(key.ContainerID)), func(a attachment.Attachment) bool {
		return a.IfName != key.IfName && a.MadeWith != key.IfName
	})
	slices.SortFunc(g, func(a, b attachment.Attachment) int {
		switch {
		case a.Key == key:
			return -1
		case b.Key == key:
			return 1
		}
		// net2 before net10.
		return cmp.Or(cmp.Compare(len(a.IfName), len(b.IfName)), cmp.Compare(a.IfName, b.IfName))
	})
	return g
}

func (g group) keys() []attachment.Key {
	list := make([]attachment.Key, len(g))
	for i, a := range g {
		list[i] = a.Key
	}
	return list
}

// maker is the key of the ADD that made an attachment.
func maker(a attachment.Attachment) attachment.Key {
	if a.MadeWith == "" {
		return a.Key
	}
	return attachment.Key{ContainerID: a.ContainerID, IfName: a.MadeWith}
}
