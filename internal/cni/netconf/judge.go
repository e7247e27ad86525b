// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"coelan.io/coelan/internal/cni/relaxed"
	"coelan.io/coelan/internal/cni/wire"
)

// Finding is what a key of a configuration does.
type Finding struct {
	Key     string // with the keys of the objects that it is in, such as ovs.vxlan; "": of the text
	Value   string // as it is written, shortened; of the text: all of it as it is meant
	State   State
	Meaning string

	unknown, mistyped bool
}

// String is the finding as a message has it.
func (f Finding) String() string {
	if f.Key == "" {
		return f.Meaning
	}
	return fmt.Sprintf("%s %s (%s): %s", f.Key, f.Value, f.State, f.Meaning)
}

const unknownKey = "no such key is known"

// Judge says of each key what it does on a node with the agent's bridge of that name, in the order
// of the keys' names, and returns the text as JSON. A finding without a key says what was corrected
// for that. The error says why it is no JSON object.
func Judge(data []byte, agentBridge string) (text []byte, findings []Finding, err error) {
	text, findings, given, err := judged(data, agentBridge)
	if err != nil {
		return text, findings, err
	}
	return text, withProblem(text, findings, given, agentBridge), nil
}

// withProblem adds what is wrong with a configuration although each of its keys is right.
func withProblem(text []byte, findings []Finding, given map[string]json.RawMessage, agentBridge string) []Finding {
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.State == Refused }) {
		return findings
	}
	var conf Config
	err := json.Unmarshal(text, &conf)
	if err == nil {
		err = conf.complete(given, agentBridge, true)
	}
	if err != nil {
		findings = append(findings, Finding{State: Refused, Meaning: err.Error()})
	}
	return findings
}

func judged(data []byte, agentBridge string) (text []byte, findings []Finding, given map[string]json.RawMessage,
	err error,
) {
	text, findings, given, err = parsed(data)
	return text, append(findings, judgeAll("", given, keysFor(given, agentBridge))...), given, err
}

// parsed says what was corrected, and which keys are there twice.
func parsed(data []byte) (text []byte, findings []Finding, given map[string]json.RawMessage, err error) {
	text, corrected := relaxed.JSON(data)
	if err := json.Unmarshal(text, &given); err != nil || given == nil {
		if err == nil {
			err = fmt.Errorf("it is null")
		}
		// About what was given: places in the corrected text would not be found.
		if json.Unmarshal(data, &given) != nil && !json.Valid(text) {
			err = json.Unmarshal(data, &given)
		}
		return data, nil, nil, newError(wire.CodeDecoding, "network configuration is not a JSON object",
			jsonProblem(data, err))
	}
	if len(corrected) > 0 {
		findings = append(findings, Finding{State: Ignored, Value: string(compact(text)),
			Meaning: "the configuration is not JSON: corrected were " + strings.Join(corrected, ", ")})
	}
	for _, name := range duplicates(text) {
		findings = append(findings, Finding{Key: name, State: Refused, Value: "twice",
			Meaning: "the key is there more than once: keep the one that is meant"})
	}
	return text, findings, given, nil
}

func judgeAll(path string, given map[string]json.RawMessage, known map[string]key) []Finding {
	var findings []Finding
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if path == "" && strings.HasPrefix(name, "cni.dev/") {
			continue // reserved by the specification for what it adds
		}
		findings = append(findings, judgeOne(path+name, name, given[name], known)...)
	}
	return findings
}

func judgeOne(path, name string, value json.RawMessage, known map[string]key) []Finding {
	f := Finding{Key: path, Value: shorten(compact(value))}
	k, ok := known[name]
	if !ok {
		f.State, f.Meaning, f.unknown = Refused, unknownKey, true
		if at := elsewhere(name); at != "" && at != path {
			f.Meaning = "it belongs into " + at
		}
		return []Finding{f}
	}
	if err := k.typed(value); err != nil {
		f.State, f.Meaning, f.mistyped = Refused, err.Error(), true
		return []Finding{f}
	}
	if k.within != nil {
		var inner map[string]json.RawMessage
		if err := json.Unmarshal(value, &inner); err == nil {
			return judgeAll(path+".", inner, k.within)
		}
	}
	f.State, f.Meaning = k.state, k.meaning
	if k.judge != nil {
		f.State, f.Meaning = k.judge(bytes.TrimSpace(value))
	}
	return []Finding{f}
}

// elsewhere is the path of a key that is known in another object; "" if there is none.
func elsewhere(name string) string {
	if _, ok := keys[name]; ok {
		return name
	}
	for _, object := range []string{"ovs", "ovsConfig"} {
		if _, ok := keys[object].within[name]; ok {
			return object + "." + name
		}
	}
	return ""
}

func compact(value json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return value
	}
	return b.Bytes()
}

// duplicates are the paths of keys that an object of text has more than once.
func duplicates(text []byte) []string {
	type level struct {
		path   string
		seen   map[string]bool // nil in a list
		key    string
		isName bool // the next string is a name
	}
	var found []string
	stack := []*level{{}}
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.Token()
		if err != nil {
			return found
		}
		top := stack[len(stack)-1]
		if name, ok := token.(string); ok && top.isName {
			top.key, top.isName = name, false
			if path := top.path + name; top.seen[name] && !slices.Contains(found, path) {
				found = append(found, path)
			}
			top.seen[name] = true
			continue
		}
		if top.seen != nil {
			top.isName = true // after this value
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, &level{path: inside(top.path, top.key), seen: map[string]bool{}, isName: true})
		case json.Delim('['):
			stack = append(stack, &level{path: inside(top.path, top.key)})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
	}
}

// inside is the prefix of the keys of an object's member.
func inside(path, key string) string {
	const limit = 1000 // of deep objects, paths would be long
	if key == "" || len(path)+len(key) > limit {
		return path
	}
	return path + key + "."
}
