# Test programs; `make test` builds the target `tests`, plain `make` does not.
#
#   tests/support/*.c                     modeld_testsupport, linked with each of them
#   tests/support/NAME_main.c             a program of its own: BUILD/tests/support/NAME
#   tests/{unit,conformance,fault}/test_*.c   a libcheck program: BUILD/tests/FOLDER/test_*
#   tests/fuzz/fuzz_*.c                   with MODELD_FUZZ a libFuzzer program, target `fuzz`: BUILD/tests/fuzz/fuzz_*
#
# The llama adapter is linked where it is meant: in conformance, and where the name of the file has `llama`; the
# scripted server uses its templates.  Where the name has `openvino` that adapter is, or the test is left out; in conformance
# with the list of engines.

if(NOT check_FOUND)
    message(STATUS "check (libcheck) is missing: no tests")
    return()
endif()

add_custom_target(tests DEPENDS modeld)

file(GLOB support_sources CONFIGURE_DEPENDS tests/support/*.c)
set(support_mains ${support_sources})
list(FILTER support_mains INCLUDE REGEX "_main\\.c$")
if(NOT MODELD_OPENVINO)
    list(FILTER support_mains EXCLUDE REGEX "openvino")
endif()
list(FILTER support_sources EXCLUDE REGEX "_main\\.c$")

if(support_sources)
    add_library(modeld_testsupport STATIC EXCLUDE_FROM_ALL ${support_sources})
    target_include_directories(modeld_testsupport PUBLIC tests)
    target_link_libraries(modeld_testsupport PRIVATE modeld_warnings PUBLIC modeld_core PkgConfig::check)
else()
    add_library(modeld_testsupport INTERFACE)
    target_include_directories(modeld_testsupport INTERFACE tests)
    target_link_libraries(modeld_testsupport INTERFACE modeld_core PkgConfig::check)
endif()

function(add_test_program folder name source)
    set(target ${folder}-${name})
    add_executable(${target} EXCLUDE_FROM_ALL ${source})
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME ${name}
        LINKER_LANGUAGE CXX
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${folder})
    target_link_libraries(${target} PRIVATE modeld_warnings modeld_testsupport)
    if(folder STREQUAL "conformance" OR name MATCHES "llama|scripted_server")
        target_link_libraries(${target} PRIVATE modeld_llama)
    endif()
    if(name MATCHES "openvino")
        target_link_libraries(${target} PRIVATE modeld_openvino)
    endif()
    if(folder STREQUAL "conformance" AND name MATCHES "openvino")
        target_link_libraries(${target} PRIVATE modeld_engines)
    endif()
    target_link_libraries(${target} PRIVATE modeld_core)
    add_dependencies(tests ${target})
endfunction()

foreach(source ${support_mains})
    cmake_path(GET source STEM name)
    string(REGEX REPLACE "_main$" "" name ${name})
    add_test_program(support ${name} ${source})
endforeach()
foreach(folder unit conformance fault)
    file(GLOB found CONFIGURE_DEPENDS tests/${folder}/test_*.c)
    if(NOT MODELD_OPENVINO)
        list(FILTER found EXCLUDE REGEX "openvino")
    endif()
    foreach(source ${found})
        cmake_path(GET source STEM name)
        add_test_program(${folder} ${name} ${source})
    endforeach()
endforeach()

# The library's own parameters are looked at.
target_link_libraries(unit-test_llama_rope PRIVATE modeld::llama)

# Calls of the system that a test makes fail: the __wrap functions of its file stand in for them.
foreach(call write pread openat fdatasync fsync close renameat unlinkat fstatat fstat getrandom)
    target_link_options(fault-test_sections_faults PRIVATE -Wl,--wrap=${call})
endforeach()
foreach(call write pread openat fdatasync fsync renameat)
    target_link_options(fault-test_store_faults PRIVATE -Wl,--wrap=${call})
endforeach()

if(MODELD_OPENVINO)
    target_link_options(conformance-test_openvino_prove_exact PRIVATE -Wl,--wrap=md_ov_model_run)
    # the shim is linked in, not loaded, so that its calls can be wrapped: those whose names stand in the file
    foreach(of faults/calls device/device)
        string(REGEX MATCH "^[a-z]+" test ${of})
        string(REGEX REPLACE "^.*/" "tests/fault/openvino_" calls ${of}.cc)
        set(target fault-test_openvino_${test})
        target_sources(${target} PRIVATE ${calls} $<TARGET_OBJECTS:modeld_openvino_parts>)
        target_link_libraries(${target} PRIVATE modeld::openvino)
        set_target_properties(${target} PROPERTIES BUILD_RPATH ${MODELD_OPENVINO_LIBDIR})
        file(STRINGS ${calls} lines REGEX "\"_Z")
        if(test STREQUAL "faults")
            list(APPEND lines _Znwm)
        endif()
        foreach(line ${lines})
            string(REGEX MATCH "_Z[A-Za-z0-9_]+" call ${line})
            target_link_options(${target} PRIVATE -Wl,--wrap=${call})
        endforeach()
    endforeach()
endif()

if(MODELD_FUZZ)
    add_custom_target(fuzz)
    file(GLOB found CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
    foreach(source ${found})
        cmake_path(GET source STEM name)
        add_test_program(fuzz ${name} ${source})
        target_link_options(fuzz-${name} PRIVATE -fsanitize=fuzzer)
        add_dependencies(fuzz fuzz-${name})
    endforeach()
endif()
