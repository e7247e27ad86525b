// SPDX-License-Identifier: Apache-2.0

// Protogen generates Go of the product's .proto files, each beside its own.
//
//	protogen ROOT
//
// It is a module of its own so that the compiler stays out of the product's dependencies.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/pluginpb"
)

// sources are relative to the root.
var sources = []string{"internal/policystream/wire/policies.proto"}

// plugins are tools of this module.
var plugins = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: protogen ROOT")
		os.Exit(2)
	}
	if err := write(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func write(ctx context.Context, root string) error {
	files, err := generate(ctx, root)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(root, name), files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the files' texts by their paths in the source at root.
func generate(ctx context.Context, root string) (map[string][]byte, error) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, sources...)
	if err != nil {
		return nil, err
	}
	parameter := "paths=source_relative"
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: sources, Parameter: &parameter}
	for _, f := range compiled {
		request.ProtoFile = append(request.ProtoFile, protoutil.ProtoFromFileDescriptor(f))
	}
	input, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, name := range plugins {
		response, err := run(ctx, name, input)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, f := range response.GetFile() {
			files[f.GetName()] = []byte(f.GetContent())
		}
	}
	return files, nil
}

// run is one call of a plugin.
func run(ctx context.Context, name string, input []byte) (*pluginpb.CodeGeneratorResponse, error) {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "tool", name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &output, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(output.Bytes(), response); err != nil {
		return nil, err
	}
	if text := response.GetError(); text != "" {
		return nil, errors.New(text)
	}
	return response, nil
}
