// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"coelan.io/coelan/internal/statefile"
)

// File is the name of the file that keeps what holds, in the state directory.
const File = "node-configuration.json"

// state is what is on disk.
type state struct {
	// Applied is what the node has come to last; nil: the ConfigMap alone.
	Applied *setting `json:"applied,omitempty"`
	// Trial is what the agent tries.
	Trial *setting `json:"trial,omitempty"`
}

// setting is a NodeNetworkConfig as a controller has sent it; without a name it is none.
type setting struct {
	Name       string          `json:"name,omitempty"`
	UID        string          `json:"uid,omitempty"`
	Generation int64           `json:"generation,omitempty"`
	Settings   json.RawMessage `json:"settings,omitempty"`
	// Time is when the node has come to it.
	Time time.Time `json:"time,omitzero"`
}

// same says whether both are the same configuration at the same time.
func (s setting) same(o setting) bool {
	return s.Name == o.Name && s.UID == o.UID && s.Generation == o.Generation
}

// String names it in logs.
func (s setting) String() string {
	if s.Name == "" {
		return "the ConfigMap"
	}
	return fmt.Sprintf("nodenetworkconfig %s, generation %d", s.Name, s.Generation)
}

// load reads the file; none is an empty state.
func load(path string) (state, error) {
	var s state
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return state{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func save(path string, s state) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	const private = 0o600
	return statefile.WriteBytes(path, private, data)
}
