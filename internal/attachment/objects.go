// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"bytes"
	"maps"
	"slices"
)

// Objects of the API as the agent saw them last, so that it can start while
// the API server is away. What is in them is the agent's business.

// kindNode is the kind that the journal wrote before there were others; its entries
// stay as they were.
const kindNode = "node"

// SaveObjects makes the saved objects of a kind equal to those given, by name; others are
// forgotten. It writes only what differs. The error is a *WriteError.
func (s *Store) SaveObjects(kind string, objects map[string][]byte) error {
	var gone []string
	for name := range s.Objects(kind) {
		if _, stays := objects[name]; !stays {
			gone = append(gone, name)
		}
	}
	return s.ChangeObjects(kind, objects, gone)
}

// ChangeObjects saves objects of a kind, by name, forgets those that are gone, and leaves all
// others. It writes only what differs. The error is a *WriteError.
func (s *Store) ChangeObjects(kind string, objects map[string][]byte, gone []string) error {
	var changes []change
	s.mu.RLock()
	for name, data := range objects {
		if was, ok := s.objects[kind][name]; !ok || !bytes.Equal(was, data) {
			changes = append(changes, saved(object{Kind: kind, Name: name, Data: slices.Clone(data)}))
		}
	}
	for _, name := range gone {
		if _, ok := s.objects[kind][name]; ok {
			changes = append(changes, forgotten(object{Kind: kind, Name: name}))
		}
	}
	s.mu.RUnlock()
	if len(changes) == 0 {
		return nil
	}
	return s.commit(changes...)
}

// Objects returns the saved objects of a kind by name. Their bytes must not be changed.
func (s *Store) Objects(kind string) map[string][]byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.objects[kind])
}

func saved(o object) change {
	if o.Kind == kindNode {
		return change{Save: &object{Name: o.Name, Data: o.Data}}
	}
	return change{SaveObject: &o}
}

func forgotten(o object) change {
	if o.Kind == kindNode {
		return change{Forget: o.Name}
	}
	return change{ForgetObject: &o}
}

func (s *Store) setObject(kind, name string, data []byte) {
	if s.objects[kind] == nil {
		s.objects[kind] = map[string][]byte{}
	}
	s.objects[kind][name] = data
}
